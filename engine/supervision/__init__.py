"""Workers that live, fail and live again."""
