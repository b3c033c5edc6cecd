"""What the machine can do, and what else it does while it measures."""
