"""How a run lies on disk. Nothing read here is ever run as code."""
