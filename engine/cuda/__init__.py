"""Running a model on a device of ONNX Runtime, with all that lasts on the device. `engine.cuda.decoder` is its face."""
