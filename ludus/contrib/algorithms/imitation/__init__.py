"""Adversarial imitation: GAIL and AIRL."""
