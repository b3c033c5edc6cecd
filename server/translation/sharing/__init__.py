"""What is asked twice is computed once: requests under way are shared, answers are kept."""
