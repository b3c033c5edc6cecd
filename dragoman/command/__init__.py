"""The command `dragoman`."""
