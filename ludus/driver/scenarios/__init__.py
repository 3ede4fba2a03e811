"""The kinds of scenarios: each says which schedule it follows."""
