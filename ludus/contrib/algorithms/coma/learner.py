"""COMA's learner: a central critic of joint actions, and the policy gradient of counterfactual advantages.

From rollouts to rows: the actions of the others at each row's moment, and TD(λ) targets by the critic's target network
(`CounterfactualExperience`). In an update the critic takes its steps first, then the policy takes its own with the
advantages that the critic then gives (`COMALearner`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import masked_log_softmax
from ludus.algorithms.common.replay_learner import NetworkEnsemble
from ludus.algorithms.common.returns import not_finite
from ludus.algorithms.common.space_checks import state_width, team_size
from ludus.algorithms.dqn.losses import gather_actions
from ludus.algorithms.on_policy.batch import Batch, SegmentPieces
from ludus.algorithms.on_policy.experience import ExperienceBuilder, ValueEstimates
from ludus.algorithms.on_policy.learner import ActorCriticModel, OnPolicyLearner
from ludus.algorithms.on_policy.multi_agent import critic_states
from ludus.backend.device import to_device, to_numpy
from ludus.backend.network import NonFiniteGuard
from ludus.contrib.algorithms.joint_steps import left_at
from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, SegmentEnd, State, Weights
from ludus.policies.bodies import make_body, orthogonal, own_stream
from ludus.policies.specs import body_config
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.contrib.algorithms.coma.config import COMA

# --------------------------------------------------------------------------------------------------------------------
# Pure functions of rows.


def counterfactual(q: Tensor, probability: Tensor, action: Tensor) -> Tensor:
    """Return the counterfactual advantage Q(s, u) - Σ_a π(a) Q(s, (a, u⁻)) [n]: the value of an agent's action minus
    its expectation under the agent's policy, with the others' actions fixed. (Foerster et al. 2018, equation 4.)

    Args:
        q: float[n, A], values of each own action.
        probability: float[n, A], 0 where illegal.
        action: int64[n], the action taken.
    """
    return gather_actions(q, action) - (probability * q).sum(dim=1)


class JointStepIndex(NamedTuple):
    """Position of N rows in joint steps: moment int64[N], equal where agents of a side decide together, and agent
    int64[N], which of the side's agents decides."""

    moment: NDArray[np.int64]
    agent: NDArray[np.int64]


def same(*keys: Array) -> NDArray[np.int64]:
    """Return group numbers int64[N] from 0, equal where all keys [N] are."""
    order = np.lexsort(keys)
    new = np.zeros(len(order), np.bool_)
    for key in keys:
        new[1:] |= key[order[1:]] != key[order[:-1]]
    out = np.empty(len(order), np.int64)
    out[order] = np.cumsum(new)
    return out


def joint_inputs(places: JointStepIndex, action: Array, *, agents: int, actions: int) -> NDArray[np.float32]:
    """Return the others' actions at each row's moment and the row's agent, as the critic's input: float32[N, agents ×
    (actions + 1)].

    It consists of one-hot actions [agents, actions], zero for the agent itself and for agents that do not decide then,
    and a one-hot id.
    """
    count, rows = len(action), np.arange(len(action))
    done = np.zeros((int(places.moment.max(initial=-1)) + 1, agents, actions), np.float32)
    done[places.moment, places.agent, action] = 1.0
    out = np.zeros((count, agents * (actions + 1)), np.float32)
    others = done[places.moment]
    others[rows, places.agent] = 0.0
    out[:, : agents * actions] = others.reshape(count, -1)
    out[rows, agents * actions + places.agent] = 1.0
    return out


def sample_actions(probability: Array, uniform: Array) -> NDArray[np.int64]:
    """Return one action per row, int64[n], of probabilities float[n, A], by uniforms float[n] in [0, 1)."""
    total = np.cumsum(probability.astype(np.float64), axis=1)
    below = (total <= uniform[:, None] * total[:, -1:]).sum(axis=1)
    out: NDArray[np.int64] = np.minimum(below, probability.shape[1] - 1)
    return out


# --------------------------------------------------------------------------------------------------------------------
# The critic, and the policy's model that has it beside.


class Critic(nn.Module):
    """Central critic: inputs float32[n, inputs] -> Q float32[n, A] of an agent's own actions, given the others'
    (Foerster et al. 2018, figure 1c)."""

    def __init__(self, inputs: int, actions: int, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body, features = make_body(body, (inputs,))
        self.head = nn.Linear(features, actions)
        orthogonal(self.body)
        orthogonal(self.head, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


class CounterfactualModel(ActorCriticModel):
    """The actor's network without a value, and a critic that is not part of the policy, with one optimizer each. state:
    width of what the critic sees in addition to an observation, the environment's state and `joint_inputs`."""

    config: COMA

    def __init__(self, config: COMA, context: LearnerContext, start: Weights | None) -> None:
        super().__init__(config, context, start, no_kernel_reason="its critic is another network")
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        self.state = state_width(context.env, context.seats) + self.team * (self.actions + 1)
        inputs = self.state + int(np.prod(self.shape))
        body = body_config(hidden=config.critic_hidden, activation="relu")
        with own_stream(seeding.key(context.seed, "coma", "critic") % 2**63):
            critic = Critic(inputs, self.actions, body)
        self.critic = NetworkEnsemble(critic, ranks=context.ranks, placement=self.placement, layouts=[])
        self._critic_guard = NonFiniteGuard(self.placement.torch)

    def critic_inputs(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the critic's inputs float32[n, inputs]: states float32[n, state] and observations [n, *shape],
        normalised if they are."""
        first = self._networks[0]
        x = x.float() if first.normaliser is None else first.normaliser(x.float())
        return torch.cat([state, x.flatten(1) * first.scale], dim=1)

    @torch.no_grad()
    def probabilities(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the policy's action probabilities float32[n, A] for rows that are one step each."""
        out = self.module.unroll(x.float(), memory, None, None)[0]
        return masked_log_softmax(out.float(), mask).exp()

    @torch.no_grad()
    def with_advantages(self, batch: Batch) -> Batch:
        """Return the batch with counterfactual advantages by the present critic and policy, and the values of the
        actions taken."""
        assert batch.state is not None
        probability = masked_log_softmax(self._forward(batch)[0], batch.mask).exp()
        q = self.critic(self.critic_inputs(batch.x, batch.state))
        return replace(
            batch, advantage=counterfactual(q, probability, batch.action), value=gather_actions(q, batch.action)
        )

    def learn_critic(self, batch: Batch, parts: Iterable[NDArray[np.int64]], rate: float) -> Metrics:
        """Take one step on ½ (Q(s, u) - y)² for each part of the rows. Return the metrics of the last step; raise
        TrainingError if a loss is not finite."""
        assert batch.state is not None
        inputs, device = self.critic_inputs(batch.x, batch.state).detach(), self.placement.torch
        zero = torch.zeros((), device=device)
        loss, norm = zero, zero
        for part in parts:
            index = to_device(part[self._ranks.share(len(part))], device)
            error = gather_actions(self.critic(inputs[index]), batch.action[index]) - batch.target[index]
            sums, norm = self.critic.descend(
                0.5 * error.square().sum() / len(part),
                (),
                rate=rate,
                max_norm=self.config.max_gradient_norm,
                guard=self._critic_guard,
            )
            loss = sums[0]
        self._critic_guard.watch(self.critic.online.values)
        (lost, length), wrong = self._critic_guard.read([loss, norm])
        if wrong:
            raise TrainingError("the critic's loss or its gradient became NaN or infinite")
        return {"value_loss": lost, "critic_gradient_norm": length}

    # ------------------------------------------------------------------------------------------ state

    def snapshot(self) -> Any:
        flats = self.critic.online.values, self.critic.target.values
        return super().snapshot(), [values.clone() for values in flats], self.critic.adam.snapshot()

    def restore(self, snapshot: Any) -> None:
        model_snapshot, (online, target), adam = snapshot
        super().restore(model_snapshot)
        self.critic.online.values.copy_(online)
        self.critic.target.values.copy_(target)
        self.critic.adam.restore(adam)

    def state_dict(self) -> State:
        return {**super().state_dict(), "critic": self.critic.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.critic.load_state_dict(state["critic"])


# --------------------------------------------------------------------------------------------------------------------
# From rollouts to rows.


class CounterfactualExperience(ExperienceBuilder):
    """Rows with the others' actions, and λ-returns of Q' of the joint actions that were taken, by the critic's target
    network."""

    _config: COMA
    _model: CounterfactualModel

    def __init__(self, config: COMA, model: CounterfactualModel, context: LearnerContext) -> None:
        super().__init__(config, model, context)
        self._seed = context.seed
        self._place = context.env.agent_index
        self.number = 0  # of the update that comes next

    def estimate_values(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> ValueEstimates:
        """Return Q'(s, u) of each row, and the expected Q' of the policy after each segment that continues, with
        actions sampled from the others' policies. So G_t = r_t + γ ((1 - λ) Q'(s_{t+1}, u_{t+1}) + λ G_{t+1}).
        (Foerster et al. 2018, TD(λ).)"""
        assert bootstrap_state is not None
        pieces = before = last = None
        if self._model.memory:
            pieces = SegmentPieces.of(rows.start, self._model.sequence)
            _, before, last = self._walk(rows, pieces, None)
        value = self._target_values(rows.observation, self._critic_states(rows, state))[
            np.arange(rows.num_rows), rows.action
        ]
        return ValueEstimates(value, self._after(rows, bootstrap_state, last), pieces, before)

    def extra_columns(self, rows: Trajectories) -> ItemColumns:
        """Return the critic's inputs other than observations, in place of the state."""
        return {"state": self._critic_states(rows, critic_states(rows, self._seats)[0])}

    def _critic_states(self, rows: Trajectories, state: NDArray[np.float32] | None) -> NDArray[np.float32]:
        assert state is not None
        length = np.diff(rows.start)
        moment = same(np.repeat(rows.episode, length), np.repeat(rows.seat, length), rows.t)
        places = JointStepIndex(moment, np.repeat(self._place[rows.agent], length))
        return np.concatenate([state, self._joint(places, rows.action)], axis=1)

    def _joint(self, places: JointStepIndex, action: Array) -> NDArray[np.float32]:
        return joint_inputs(places, action, agents=self._model.team, actions=self._model.actions)

    @torch.no_grad()
    def _target_values(self, observation: Array, critic_state: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return Q' float64[n, A] of own actions."""
        model, state = self._model, to_device(critic_state, self._device)
        out = model.critic(model.critic_inputs(self.inputs(observation), state), target=True)
        return to_numpy(out).astype(np.float64)

    def _after(
        self, rows: Trajectories, state: NDArray[np.float32], memory: NDArray[np.float32] | None
    ) -> NDArray[np.float64]:
        """Return the value after each segment, float64[S]; 0 of those that terminated. The agents of a side that
        continue do so together."""
        out, model = np.zeros(rows.num_segments), self._model
        on = np.flatnonzero(rows.tail != SegmentEnd.TERMINATED)
        if not len(on):
            return out
        mask = None if rows.bootstrap_mask is None else rows.bootstrap_mask[on]
        observation = rows.bootstrap_observation[on]
        remembered = None if memory is None else to_device(memory[on], self._device)
        legal = None if mask is None else to_device(mask, self._device)
        probability = to_numpy(model.probabilities(self.inputs(observation), remembered, legal)).astype(np.float64)
        uniform = seeding.generator(self._seed, "coma", "after", self.number).random(len(on))
        places = JointStepIndex(same(rows.episode[on], rows.seat[on], left_at(rows)[on]), self._place[rows.agent[on]])
        joint = self._joint(places, sample_actions(probability, uniform))
        q = self._target_values(observation, np.concatenate([state[on], joint], axis=1))
        out[on] = (probability * q).sum(axis=1)
        return out


class COMALearner(OnPolicyLearner):
    """On-policy learner whose critic is trained separately."""

    config: COMA
    model: CounterfactualModel
    makes_items = CounterfactualExperience
    _items: CounterfactualExperience
    _critic: Metrics

    def on_device_unsupported_reason(self) -> str:
        return "its critic sees what the others do, which is put together on the host"

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return decision rows with the critic's targets; with a memory, sequences of them."""
        self._items.number = self._updates
        return super().items(trajectories)

    def update(self, batch: Any) -> Metrics:
        """Run the critic's steps, then the policy's. Raise TrainingError; the weights of before this update then stay."""
        metrics = super().update(batch)
        config, number = self.config, self._updates
        if config.polyak is not None:
            self.model.critic.update_target(config.polyak)
        elif number % config.target_period == 0:
            self.model.critic.update_target(1.0)
        return {**metrics, **self._critic}

    def _batch(self, columns: Mapping[str, Any]) -> Batch:
        if wrong := not_finite(columns):
            raise self._error(wrong, "before the first epoch: check rewards and value estimates")
        batch, _ = self._items.batch(columns)
        rng = seeding.generator(self._seed, "coma", "rows", self._updates)
        parts = np.array_split(rng.permutation(len(batch)), min(self.config.critic_steps, len(batch)))
        rate = self.config.critic_rate.at(self._progress)
        try:
            self._critic = self.model.learn_critic(batch, parts, rate)
        except TrainingError as error:
            raise self._error(str(error).removesuffix(" became NaN or infinite"), f"at a rate of {rate:g}") from None
        return self._weighted(self.model.with_advantages(batch), {})
