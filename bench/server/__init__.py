"""What a running server does under load, and what its metrics cost."""
