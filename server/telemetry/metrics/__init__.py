"""What Prometheus can ask for."""
