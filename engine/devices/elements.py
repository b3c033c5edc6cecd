"""What the elements of a tensor are, by the numbers of `onnx.TensorProto`. numpy, which has no bf16, cannot say it."""

FLOAT, INT32, INT64, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 10, 11, 16
