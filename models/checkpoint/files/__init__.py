"""What lies in a checkpoint folder, and how it is read."""
