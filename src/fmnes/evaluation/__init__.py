"""The only part that touches the user's code: points go in, outcomes come out."""
