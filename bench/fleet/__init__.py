"""A fleet on paper: replicas, routing, old reports and lost zones, simulated by what the engine's steps cost.

docs/scaling.md has what it answers.
"""
