"""One training task: collect, learn, publish; trainers; stoppers; callbacks."""
