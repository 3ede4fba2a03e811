"""AlphaZero."""
