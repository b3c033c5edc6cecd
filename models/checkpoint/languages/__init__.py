"""Languages of models of many: what a vocabulary calls them, and their BCP-47 tags."""
