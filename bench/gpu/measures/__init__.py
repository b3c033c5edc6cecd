"""The parts that measure: tokens a second, latency, the decode step and its floor, memory, training."""
