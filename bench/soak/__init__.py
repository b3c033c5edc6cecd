"""`python -m bench.soak`: a server under every kind of caller at once, for hours. See docs/benchmarks.md."""
