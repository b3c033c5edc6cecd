"""Graphs of our own operators (kernels/README.md), node by node from the modules of a model."""
