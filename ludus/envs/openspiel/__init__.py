"""OpenSpiel's games, stepped through OpenSpiel."""
