"""Which device a model runs on, what it has, and sessions that run there or not at all."""
