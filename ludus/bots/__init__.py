"""Bots: what plays a game by search or by a script, in evaluation."""
