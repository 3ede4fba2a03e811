"""Matches, exact values, exploiters, tournaments, recordings."""
