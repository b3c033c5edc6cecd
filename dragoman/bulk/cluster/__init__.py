"""The engines of a Ray cluster, for bulk. Ray is an extra: all but `version` imports it."""
