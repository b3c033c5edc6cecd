"""Mountains of text, from files into files: sorted by length, each text once, to be gone on with after any end."""
