"""The web page and the report of runs."""
