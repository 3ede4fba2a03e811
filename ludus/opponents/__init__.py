"""Opponents that change while a task trains: rules that move a mixture's probabilities."""
