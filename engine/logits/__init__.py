"""What few searches ask for: whole rows of logits, and what is made of them."""
