"""The parts of `python -m bench.gpu_check`. Each module with a `run` is a part, and runs in a process of its own."""
