"""Engines that take turns, each in a process of its own."""
