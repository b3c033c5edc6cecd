"""What an encoder alone answers: vectors and labels."""
