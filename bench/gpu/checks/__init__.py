"""The parts that prove: packages, providers, log-probabilities, tokens, and that nothing grows."""
