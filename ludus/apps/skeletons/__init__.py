"""Skeletons of packages that extend Ludus: code, a scenario that uses it, and tests that pass."""
