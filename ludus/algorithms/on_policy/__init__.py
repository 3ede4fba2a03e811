"""On-policy learning by autograd: the family of policy gradients, and a base for custom algorithms of networks and a
loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ludus.algorithms.on_policy.config import OnPolicy, PolicyGradient

if TYPE_CHECKING:
    from ludus.algorithms.on_policy.batch import Batch

__all__ = ["Batch", "OnPolicy", "PolicyGradient"]


def __getattr__(name: str) -> Any:
    if name == "Batch":  # it needs torch, which a scenario can be read without
        from ludus.algorithms.on_policy.batch import Batch

        return Batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
