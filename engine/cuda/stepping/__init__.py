"""Decoder steps on a device, of several sizes, and those that it makes ahead of the host."""
