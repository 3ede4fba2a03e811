"""One module per family of environments; each is imported when an environment of its family is made or listed."""
