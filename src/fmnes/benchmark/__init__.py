"""Speed and memory beside the peers, in one run: what `fmnes bench` shows."""
