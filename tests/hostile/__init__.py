"""Attacks on a real server process: what must hold whatever is sent."""
