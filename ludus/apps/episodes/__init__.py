"""Episodes of a stored run looked at one by one: played, recorded, debugged, drawn."""
