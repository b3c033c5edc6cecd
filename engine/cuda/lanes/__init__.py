"""What a decoder step is fed and what it gives, in the memory of the device and of the host."""
