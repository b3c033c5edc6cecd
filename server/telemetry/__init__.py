"""What the server tells of itself: metrics, log, traces."""
