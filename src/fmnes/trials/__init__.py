"""Many independent runs on all cores, kept line by line: what the reproduction and the benchmarks share."""
