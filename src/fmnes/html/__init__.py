"""The page of a run, in a file and live."""
