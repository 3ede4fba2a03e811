"""Settings of behaviour cloning."""

from __future__ import annotations

from pydantic import Field

from ludus.config import Config


class Cloning(Config):
    """epochs: passes over the decisions, at most. batch: decisions of a step; with a memory, of whole episodes that have about as many.
    held_out: share of the episodes that it is not trained on, by which the best epoch is chosen; 0: none, and the last epoch is taken.
    patience: epochs without a better one after which it stops."""

    epochs: int = Field(default=50, ge=1)
    batch: int = Field(default=512, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    max_gradient_norm: float = Field(default=1.0, ge=0)  # 0: not clipped
    held_out: float = Field(default=0.1, ge=0, lt=1)
    patience: int = Field(default=5, ge=1)
