"""What the elements of a tensor are, by the numbers of `onnx.TensorProto`. numpy, which has no bf16, cannot say it."""

from models.package.declared.precision import Precision

FLOAT, INT32, INT64, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 10, 11, 16
NAMES = {FLOAT: "fp32", INT32: "int32", INT64: "int64", FLOAT16: "fp16", DOUBLE: "fp64", BFLOAT16: "bf16"}
OF_NUMBERS: dict[Precision, int] = {"fp32": FLOAT, "fp16": FLOAT16, "bf16": BFLOAT16, "int16": FLOAT, "int8": FLOAT}
"""Of hidden states and logits: between whole numbers everything is fp32."""
