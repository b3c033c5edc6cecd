"""New versions of the packages that are served: loaded beside them, checked, and put in their place."""
