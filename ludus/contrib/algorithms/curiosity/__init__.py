"""Intrinsic rewards: random network distillation and the intrinsic curiosity module."""
