"""The tokenizers of checkpoints -> those of packages."""
