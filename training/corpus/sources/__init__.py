"""Where the sentences of a corpus come from."""
