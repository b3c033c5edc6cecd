"""Where calls come in: a gRPC port without a model."""
