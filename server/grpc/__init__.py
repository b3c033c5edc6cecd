"""The gRPC face: services, what every call goes through, ports."""
