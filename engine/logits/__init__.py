"""What few ask for: whole rows of logits and what is made of them, and what passes say of given targets."""
