"""Members, the match log, payoff tables and ratings."""
