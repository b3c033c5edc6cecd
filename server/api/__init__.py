"""The services of the API, by whichever face a call comes: protobuf to plain values and back."""
