"""External programs as objectives."""
