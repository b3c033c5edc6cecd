"""`python -m bench.gpu_check`. Its parts are the modules of `checks` and `measures` that have a `run`."""
