"""What settings look like: their forms as texts, and the flags that give them."""
