"""Encoders alone: in 8 bits, held to their vectors, and in 16."""
