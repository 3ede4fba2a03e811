"""What learned rewards of several algorithms share."""
