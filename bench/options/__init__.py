"""What requests can ask for beside a translation, and what it costs. The command itself: options of decoding."""
