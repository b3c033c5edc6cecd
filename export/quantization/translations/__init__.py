"""A translation model to one of 8 bits: measured by its own translations."""
