"""Benchmarks, the reproduction of the paper, real problems and the demo."""
