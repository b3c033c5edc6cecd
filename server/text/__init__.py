"""Texts that are not one sentence: segmented, protected and translated, with what stood around the sentences kept."""
