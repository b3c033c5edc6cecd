"""Running a model on the CPU provider of ONNX Runtime."""
