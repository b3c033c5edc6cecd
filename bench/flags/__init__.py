"""What command lines of measurements have in common."""
