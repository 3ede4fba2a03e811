"""Tournaments: everybody against everybody."""
