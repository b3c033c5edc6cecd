"""Small graphs that move numbers on a device."""
