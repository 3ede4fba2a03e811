"""Models of other libraries, answering batches of decisions. Nothing here imports Ludus: `serve` runs it in a Python of its own."""
