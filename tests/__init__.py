"""A package, so that a `tests` of somebody else's in the environment (ioh installs one) is not taken for it."""
