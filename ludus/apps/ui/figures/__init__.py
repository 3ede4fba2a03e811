"""Panels of a run's page, computed from its database only."""
