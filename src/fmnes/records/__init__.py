"""What a run has evaluated, as a table in the user's names and units, and as a file for other programs."""
