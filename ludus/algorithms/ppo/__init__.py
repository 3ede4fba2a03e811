"""Proximal policy optimisation, and its form for teams, MAPPO."""
