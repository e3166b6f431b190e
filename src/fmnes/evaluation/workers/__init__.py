"""Python functions in supervised processes of ours."""
