"""How calls are made: to which server, how often, and how long they may take."""
