"""Reading runs: what was asked, how far they are, and every evaluation."""
