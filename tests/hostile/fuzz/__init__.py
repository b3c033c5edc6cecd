"""Mutated messages to every method of a real server whose decoder copies."""
