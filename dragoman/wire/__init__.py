"""Between plain values and protobuf."""
