"""Bare PyTorch weights with a checkpoint.toml that describes them."""
