"""Dragoman's own operators for ONNX Runtime: C++ in src/, and what opens the built library."""
