"""A cluster of Ray beside one machine: the same answers, whatever dies."""
