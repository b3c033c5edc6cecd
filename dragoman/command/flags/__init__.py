"""What may stand on the command line of `dragoman`, and what it says."""
