"""What is served."""
