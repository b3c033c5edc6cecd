"""Where requests wait, and what they cost."""
