"""The package: the folder that export writes and the engine opens."""
