"""The messages of the API as JSON, and what describes them to those who have no proto/."""
