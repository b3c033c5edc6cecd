"""Who may enter."""
