"""Contract checks and fakes, for users too."""
