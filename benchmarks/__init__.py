"""Benchmarks that run: each module measures Ludus beside a peer or a bare limit and says whether its bars are met."""
