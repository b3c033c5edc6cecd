"""What a package does with one text, written down as a page: `python -m inspection`, `dragoman inspect`."""
