"""Documents: files whose texts are translated, and all of which else is kept."""
