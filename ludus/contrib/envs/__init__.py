"""Adapters of environments of other packages."""
