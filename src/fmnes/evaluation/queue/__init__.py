"""Evaluation by workers that share nothing with the driver but a directory."""
