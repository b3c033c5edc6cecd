"""The face for callers in this process: the handlers of the API without a port, as `grpc` and others are theirs."""
