"""Gradient steps of magnetic mirror descent: losses of some rows, and Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.mmd.terms import Floats, Terms, policy_terms
from ludus.algorithms.network import Network, Passes
from ludus.algorithms.optimizer import Adam
from ludus.algorithms.ppo.batch import Batch
from ludus.algorithms.ppo.cells import Cells, cells_of, value_terms
from ludus.algorithms.ppo.steps import Fail
from ludus.algorithms.states import compact


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of one step as cells over m states, with the policies float64[m, A] that they are held to, and buffers for the network."""

    mask: NDArray[np.bool_]
    cells: Cells
    before: Floats
    magnet: Floats
    passes: Passes


@dataclass(frozen=True, slots=True)
class Step:
    """Losses before the step (means over its rows), and the gradient's norm before it was clipped."""

    terms: Terms
    value_loss: float
    norm: float

    @staticmethod
    def nothing() -> Step:
        """Of an update without rows."""
        return Step(Terms(0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0.0)


class Steps:
    """Moves `network`."""

    def __init__(self, config: MMD, network: Network, *, actions: int) -> None:
        self.adam = Adam(len(network.flat))
        self._config, self._network, self._actions = config, network, actions
        self._value_part = "value" if config.value_network == "separate" else "policy"

    def part(self, batch: Batch, before: Floats, magnet: Floats, index: NDArray[np.int64]) -> Part:
        """Some of the rows."""
        states, state = compact(batch.state[index], len(batch.mask))
        rows = (batch.action[index], batch.logp[index], batch.advantage[index], batch.target[index], batch.value[index])
        piece = Batch(batch.x[torch.from_numpy(states)], batch.mask[states], state, *rows, len(index))
        return self.prepare(piece, before[states], magnet[states])

    def prepare(self, batch: Batch, before: Floats, magnet: Floats) -> Part:
        """Once for all steps on the same rows."""
        cells = cells_of(
            batch.state,
            batch.action,
            batch.logp,
            batch.advantage,
            batch.target,
            states=len(batch.mask),
            actions=self._actions,
            rows=batch.joint,
        )
        return Part(batch.mask, cells, before, magnet, Passes(self._network, batch.x))

    def take(self, part: Part, *, rate: float, alpha: float, beta: float, where: str, fail: Fail) -> Step:
        """One gradient step. Raises what `fail` makes of what is not finite, and where."""
        config, passes = self._config, part.passes
        passes.forward()
        terms = policy_terms(
            passes.outputs["policy"],
            part.mask,
            part.cells,
            magnet=part.magnet,
            before=part.before,
            alpha=alpha,
            beta=beta,
            clip=config.clip,
            gradient=passes.gradients["policy"],
        )
        out, gradient = passes.outputs[self._value_part], passes.gradients[self._value_part]
        value = value_terms(out, part.cells, scale=config.value_coefficient, gradient=gradient)
        for name, loss in (("policy loss", terms.surrogate), ("divergence", terms.moved), ("value loss", value)):
            if not math.isfinite(loss):
                raise fail(f"the {name}", f"in {where}")
        passes.backward()
        norm = self.adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=config.max_gradient_norm)
        if not math.isfinite(norm):
            raise fail("the gradient", f"in {where}")
        return Step(terms, value, norm)
