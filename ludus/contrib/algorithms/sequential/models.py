"""Models of sequential updates: the network of the agent whose turn it is moves, by its own optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import value_loss
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.algorithms.on_policy.learner import ActorCriticModel
from ludus.backend.network import ModuleAdam
from ludus.contrib.algorithms.sequential.trust_region import Measured, TrustRegion, TrustStep, natural_step
from ludus.core.types import State, Weights

if TYPE_CHECKING:
    from ludus.contrib.algorithms.sequential.config import HATRPO, SequentialUpdateConfig


class SequentialUpdateModel(ActorCriticModel):
    """The networks of a team, one of which moves at a time: during an agent's turn the others stay, momentum included.
    Where the agents share one network, it moves in every turn, from the rows of the agent whose turn it is."""

    cuda_graph_safe = False  # a step knows whose turn it is

    def __init__(self, config: SequentialUpdateConfig, context: LearnerContext, start: Weights | None) -> None:
        super().__init__(config, context, start, no_kernel_reason="agents are updated in sequence")
        if len(self._networks) > 1:
            self._adams = [ModuleAdam(self.parameters.part(network)) for network in self._networks]
            self.adam = self._adams[0]
        else:
            self._adams = [self.adam]

    @property
    def shared(self) -> bool:
        """Return whether a turn moves all agents."""
        return len(self._networks) == 1

    @contextmanager
    def turn(self, agent: int) -> Iterator[None]:
        """Give a turn to an agent: inside the context batches are of its rows, and steps move its network."""
        place = 0 if self.shared else agent
        self._active_network, self.adam = self._networks[place], self._adams[place]
        try:
            yield
        finally:
            self._active_network = self.module

    # ------------------------------------------------------------------------------------------ state

    def snapshot(self) -> Any:
        state = self.parameters.module.state_dict()
        return {name: tensor.clone() for name, tensor in state.items()}, [adam.snapshot() for adam in self._adams]

    def restore(self, snapshot: Any) -> None:
        self.parameters.module.load_state_dict(snapshot[0])
        for adam, before in zip(self._adams, snapshot[1], strict=True):
            adam.restore(before)

    def state_dict(self) -> State:
        return {**super().state_dict(), "adam": {str(k): adam.state_dict() for k, adam in enumerate(self._adams)}}

    def load_state_dict(self, state: State) -> None:
        optimizers = state["adam"]
        super().load_state_dict({**state, "adam": optimizers[str(self._adams.index(self.adam))]})
        for k, adam in enumerate(self._adams):
            adam.load_state_dict(optimizers[str(k)])


class TrustRegionModel(SequentialUpdateModel):
    """A model whose actors take natural-gradient steps (`natural_step`), and whose critics learn by Adam. A central
    critic shares nothing with its actor."""

    config: HATRPO

    def _metric_names(self, config: PolicyGradient) -> tuple[str, ...]:
        return ("value_loss",)

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the critic's loss."""
        config, network = self.config, self._active_network
        value = network.value_of(batch.x.float(), batch.state).float()
        value_term = batch.mean(value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value))
        return config.value_coefficient * value_term, (value_term,)

    def improve(self, batch: Batch, progress: float) -> tuple[TrustStep, Tensor]:
        """Take the step of the actor whose turn it is, on all rows, on every rank. Return it with the mean entropy of
        the policy before."""
        config = self.config
        with torch.no_grad():
            old = self._outputs_of(batch)
            entropy = batch.mean(self.distribution.entropy(old, batch.mask))
        bonus = config.entropy.at(progress)

        def measure() -> Measured:
            out = self._outputs_of(batch)
            logp = self.distribution.log_prob(out, batch.action, batch.mask)
            gain = -batch.mean(config.surrogate(logp, batch))
            if bonus:
                gain = gain + bonus * batch.mean(self.distribution.entropy(out, batch.mask))
            return Measured(gain, batch.mean(self.distribution.divergence(old, out, batch.mask)))

        region = TrustRegion(
            max_kl=config.max_kl,
            damping=config.damping,
            conjugate_steps=config.conjugate_steps,
            line_search_steps=config.line_search_steps,
            backtrack=config.backtrack,
            accept=config.accept,
        )
        with torch.backends.cudnn.flags(enabled=False):  # whose recurrent kernels cannot be differentiated twice
            return natural_step(measure, self._acting(), region), entropy

    def _outputs_of(self, batch: Batch) -> Tensor:
        return self._active_network.unroll(batch.x.float(), batch.memory, batch.start, None)[0].float()

    def _acting(self) -> list[nn.Parameter]:
        """Return the policy's parameters of the network whose turn it is."""
        named = self._active_network.named_parameters()
        return [p for name, p in named if not name.startswith(("critic.", "value."))]
