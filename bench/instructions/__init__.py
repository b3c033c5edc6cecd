"""What instructions a step of the engine takes, and each of our own operators."""
