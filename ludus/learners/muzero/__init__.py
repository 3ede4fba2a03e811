"""MuZero."""
