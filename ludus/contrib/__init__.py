"""Algorithms of older frameworks, football and adapters of other packages: named by the registries, imported by nothing else."""
