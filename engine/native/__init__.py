"""A model on the CPU in graphs of our own operators (kernels/README.md), where rows have slots and nothing moves."""
