"""Observers of a run: they get views and never the optimizer."""
