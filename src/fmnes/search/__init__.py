"""Ask and tell: the optimizer, the slots of a generation, when to stop."""
