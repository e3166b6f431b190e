"""Evaluation of Python functions in supervised worker processes."""
