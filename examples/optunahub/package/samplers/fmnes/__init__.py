from fmnes.integrations.optuna import FMNESSampler


__all__ = ["FMNESSampler"]
