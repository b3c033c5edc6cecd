"""What the clients return: plain frozen values, no protobuf."""
