"""Text, and batches of it."""
