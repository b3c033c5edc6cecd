"""Transformer -> ONNX graphs, in memory."""
