"""The Open Inference Protocol (KServe v2, Triton) on the gRPC port. Its wire types end here."""
