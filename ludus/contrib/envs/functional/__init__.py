"""Environments that are pure functions of a state, compiled by JAX: what they are, and the vectors made of them."""
