"""A package: another one of this name may be installed (ioh brings one), and workers import ours by name."""
