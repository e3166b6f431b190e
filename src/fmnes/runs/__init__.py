"""What a run leaves on disk, and the ledger of what failed. Nothing read here is ever run as code."""
