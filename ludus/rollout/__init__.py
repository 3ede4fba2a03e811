"""Decisions in, actions out; trajectories of the learner and results of the episodes back."""
