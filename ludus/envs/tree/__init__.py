"""Games small enough to be enumerated, as flat arrays."""
