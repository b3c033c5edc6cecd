"""The port that Prometheus scrapes, and the page that it gets."""
