"""Where they are answered: a process with models, without a port of the API."""
