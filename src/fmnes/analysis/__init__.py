"""What the evaluations of a run say about the objective: where it fails, and which parameters matter."""
