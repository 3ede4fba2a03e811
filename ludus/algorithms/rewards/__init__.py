"""Rewards that a network computes from rollouts."""
