"""The loop, and what it keeps."""
