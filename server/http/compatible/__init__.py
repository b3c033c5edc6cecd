"""Services whose clients work with this server, unchanged: their routes, fields, answers and words."""
