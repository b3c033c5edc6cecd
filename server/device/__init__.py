"""Running a model on a device of ONNX Runtime, with all that lasts on the device. `server.cuda_decoder` is its face."""
