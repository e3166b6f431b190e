"""A run as an HTML page: a report file, or live in a browser."""
