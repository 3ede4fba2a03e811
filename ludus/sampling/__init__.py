"""Which matches find out most about a meta-game, and what is known after them."""
