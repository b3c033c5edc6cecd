"""Recurrent encoder-decoders, with attention and without."""
