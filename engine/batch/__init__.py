"""A running batch: whose rows they are, and which row each takes."""
