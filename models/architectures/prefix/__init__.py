"""One stack of layers that reads a source and goes on with its target: UniLM, GPT-2."""
