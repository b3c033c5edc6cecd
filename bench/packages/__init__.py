"""Packages to measure that nobody has trained."""
