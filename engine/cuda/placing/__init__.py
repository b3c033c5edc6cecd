"""Where the rows of a running batch are kept: they move, or they have slots and a history."""
