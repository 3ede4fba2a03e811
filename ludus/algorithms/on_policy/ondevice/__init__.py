"""On-policy learning of what was played on a device."""
