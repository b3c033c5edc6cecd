"""From a package to a running engine: how many rows fit, and whether its graphs say what they must."""
