"""Exact best responses on enumerated games."""
