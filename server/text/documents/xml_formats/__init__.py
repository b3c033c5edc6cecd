"""Formats that are XML, alone or in an archive."""
