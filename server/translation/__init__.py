"""The use cases: texts in, results out."""
