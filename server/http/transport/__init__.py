"""The port: its connections and their bounds."""
