"""Ray, as a runtime: parts of a run as actors, on one machine or on many."""
