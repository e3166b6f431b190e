"""Evaluation by workers that share only a directory with the driver."""
