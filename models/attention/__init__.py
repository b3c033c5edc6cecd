"""Attention: over whole texts and over caches, by positions that are added, looked up or turned by."""
