"""How results are written down."""
