"""What actor-critics that learn from replay share."""
