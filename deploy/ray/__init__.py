"""Dragoman on a cluster of Ray: an application of Ray Serve. docs/deploy.md says when, and how."""
