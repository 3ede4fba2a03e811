"""Algorithms of older frameworks, one folder each."""
