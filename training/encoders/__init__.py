"""Encoders alone: pre-training (Devlin et al. 2019, "BERT"), and heads that label texts or their tokens."""
