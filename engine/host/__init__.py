"""What both decoders for the processor of the host use, whichever operators they run."""
