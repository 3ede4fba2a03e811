"""Matches, exact values, exploiters, tournaments, bots, recordings."""
