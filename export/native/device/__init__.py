"""Graphs for GPUs, of our own operators: a decoder step, and an encoder of packed sources."""
