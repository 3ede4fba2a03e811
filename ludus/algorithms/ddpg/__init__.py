"""Deep deterministic policy gradient and its twin-delayed form."""
