"""Display of a run on a terminal."""
