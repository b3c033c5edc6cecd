"""Where the weights of a package lie."""
