"""Deep Q-learning, and its variants."""
