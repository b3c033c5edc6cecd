"""Who calls, what they may, and the files that say so, which change while the server runs."""
