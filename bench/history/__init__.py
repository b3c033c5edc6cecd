"""What is measured of the systems of docs/history.md."""
