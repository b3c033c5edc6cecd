"""What strangers and networks do to connections."""
