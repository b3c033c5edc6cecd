"""What changes the scores of next tokens before a search sees them, as the logits processors of Hugging Face do.

`chain` says which of them a request's options take, `targets` keeps what its rows have been fed, and `stage` runs them.
"""
