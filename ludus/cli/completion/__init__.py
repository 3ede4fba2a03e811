"""Completion in shells: a short script asks `ludus completion --candidates`, which loads nothing of Ludus but this folder."""
