"""Maximum a posteriori policy optimisation: MPO and V-MPO."""
