"""What becomes of the hidden states of a source: vectors (`encoding`, `dense`), or labels (`classifier`)."""

from models.encoding.encoding import Encoding, EncodingDefaults, Numbers, Pooling, Vectors, conflict

__all__ = ["Encoding", "EncodingDefaults", "Numbers", "Pooling", "Vectors", "conflict"]
