"""What a package declares of its graphs, by which an engine runs them without knowing an architecture."""
