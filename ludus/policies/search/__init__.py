"""Search in trees of positions, many games at once, and policies that play by it."""
