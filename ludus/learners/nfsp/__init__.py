"""Neural fictitious self-play."""
