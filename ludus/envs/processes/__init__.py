"""Environments in processes of their own: slow ones, and those that crash or hang."""
