"""What makes exports in one process quicker."""

from functools import cache

from onnxscript._framework_apis import torch_2_11 as exporter_api

# For every graph torch asks for the operators that onnxscript writes, and onnxscript parses the sources of all again.
exporter_api.get_torchlib_ops = cache(exporter_api.get_torchlib_ops)
