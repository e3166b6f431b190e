"""A package: a `tests` of somebody else's in the environment (ioh installs one) is not to be taken for it."""
