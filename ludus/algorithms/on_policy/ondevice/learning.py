"""Acting and learning on the device of the learner's networks: rows of a `Block` become a `Batch` there, as
`ExperienceBuilder` builds one from trajectories; recursions backwards in time are scans over all rows
(`returns.reverse_linear_scan`). Advantages are those of GAE (`returns.gae`), as tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import masked_log_softmax
from ludus.algorithms.common.returns import reverse_linear_scan
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.on_policy.autograd_model import TorchModel
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.experience import Inputs
from ludus.algorithms.on_policy.model import ActionBatch, Model, OnPolicyConfig
from ludus.replay.blocks import Block, BlockRows, of_players, placed_where, until_next

_BY_NETWORK = ("actor_critic", "torch")
"""Kinds of policies that draw from what their network answers, and do nothing else."""


def on_device_unsupported_reason(model: Model, context: LearnerContext, config: OnPolicyConfig) -> str:
    """Return what a learner does on the host only; "": nothing."""
    central = bool(model.state)
    why = {
        "it discounts by steps of the environment, which blocks do not count": config.discount == "step",
        "its passes are written out": model.placement.written,
        f"policies of kind {model.spec.kind!r} may act otherwise than their network": model.spec.kind
        not in _BY_NETWORK,
        "its network remembers": bool(model.memory),
        "several ranks learn together": context.ranks.size > 1,
        "its policy is to differ from members of its population": context.diversity is not None,
        "its critic sees whose state it is": central and len(context.seats) > 1,
        "its rewards are learned": config.learned_reward is not None,
    }
    return next((reason for reason, there in why.items() if there), "")


class OnDeviceBatcher:
    """Acts by a model and builds its batches on its device."""

    def __init__(self, config: OnPolicyConfig, model: TorchModel, inputs: Inputs, context: LearnerContext) -> None:
        self._config, self._model, self._inputs = config, model, inputs
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)

    # ------------------------------------------------------------------------------------------ acting

    @torch.no_grad()
    def table(self) -> Tensor:
        return masked_log_softmax(self._outputs(self._states), self._inputs.legal)

    @torch.no_grad()
    def act(self, x: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        out = self._outputs(self._inputs(x))
        action = self._model.distribution.sample(out, mask, generator)
        return action, self._model.distribution.log_prob(out, action, mask).float()

    def _outputs(self, x: Tensor) -> Tensor:
        with self._model.placement.products():
            return self._model.outputs(x).float()

    # ------------------------------------------------------------------------------------------ rows

    @torch.no_grad()
    def batch(self, block: Block, progress: float) -> tuple[Batch, dict[str, Tensor]]:
        """Return the batch of a block; see `ExperienceBuilder.batch`. Where its rows are not counted, the batch has rows of weight 0.
        progress: of the budget."""
        rows, config, model = BlockRows.of(block), self._config, self._model
        observation, state = _rows(block.observation, rows), state_features(_rows(block.state, rows))
        x, mask = self._inputs(observation), self._inputs.mask(observation, _rows(block.mask, rows))
        rewards = team_rewards(block) if config.team_rewards else block.reward.double()
        action = _rows(block.action, rows)
        action = action.long() if model.actions else action
        logp = _rows(block.logp, rows)
        acted = ActionBatch(x, mask, action, logp)
        reward = _rows(rewards, rows) * self._scale
        reward = model.rewards_on_device(reward, progress, acted=acted, rows=rows, block=block)
        values = self._values_of_states()
        value = self._values(observation, state, values)
        following = torch.cat([value[1:], value[:1]])
        if block.last is not None:
            last = self._values(block.last, state_features(block.last_state), values)
            following = torch.where(rows.cut, last[rows.slot], following)
        after = torch.where(rows.ended, self._finals(block, rows, values), following)
        goes_on = (~(rows.ended | rows.cut)).double()
        delta = reward + config.gamma * after - value
        # GAE: A_t = δ_t + γ λ A_{t+1}, as `returns.gae` has it on the host
        advantage = reverse_linear_scan(delta, config.gamma * config.gae_lambda * goes_on, longest=len(block.row))
        batch = Batch(
            *acted,
            advantage=advantage.float(),
            target=(advantage + value).float(),
            value=value.float(),
            state=state,
            weight=None if rows.valid is None else rows.valid.float() / rows.valid.sum().clamp(min=1),
        )
        ends = rows.ended | rows.cut
        return batch, {"reward": reward, "ends": ends, "after": after} if config.correction == "vtrace" else {}

    @property
    def _states(self) -> Tensor:
        """Return the states float32[I, *shape] of an enumerated game."""
        return self._inputs.states.reshape(-1, *self._model.shape)

    def _values_of_states(self) -> Tensor | None:
        """Return values float64[I] of an enumerated game, in which each state is evaluated once."""
        return None if self._model.table is None else self._model.values(self._states, None, None, None)[0].double()

    def _values(self, observation: Tensor, state: Tensor | None, values: Tensor | None) -> Tensor:
        """Return values float64[n]; 0 for unknown ids (-1)."""
        if values is None:
            return self._model.values(self._inputs(observation), None, None, state)[0].double()
        return torch.where(observation >= 0, values[self._inputs.index(observation)], 0.0)

    def _finals(self, block: Block, rows: BlockRows, values: Tensor | None) -> Tensor:
        """Return values float64[n] after the end of an episode: 0, or of the final observation of a truncated one."""
        out = torch.zeros(len(rows.where), dtype=torch.float64, device=rows.where.device)
        if block.final is None or not block.num_truncated:
            return out
        cut_short = placed_where(rows.ended & ~block.terminated.flatten()[rows.where], block.num_truncated)
        where = block.at.flatten()[rows.where[cut_short]] * block.row.shape[1] + rows.slot[cut_short]
        final = block.final.flatten(0, 1).index_select(0, where)
        state = None if block.final_state is None else block.final_state.flatten(0, 1).index_select(0, where)
        return out.index_copy_(0, cut_short, self._values(final, state_features(state), values))


def _rows(column: Any, rows: BlockRows) -> Any:
    """Select rows: [K, C, …] -> [n, …]; None stays."""
    return None if column is None else column.flatten(0, 1).index_select(0, rows.where)


def state_features(state: Tensor | None) -> Tensor | None:
    """Return states [n, *shape] as `ludus.algorithms.common.space_checks.state_features` does for one seat: float32[n,
    width], of uint8 in 0 … 1."""
    if state is None:
        return None
    flat = state.flatten(1).float()
    return flat / 255.0 if state.dtype == torch.uint8 else flat


def team_rewards(block: Block) -> Tensor:
    """Return what the whole team received after each of its agents' decisions, float64[K, C], up to the agent's next
    one, or to the end of the episode (`ludus.algorithms.on_policy.multi_agent.team_rewards`). A row's reward counts when its
    last part has arrived."""
    times = torch.arange(len(block.row), device=block.row.device)[:, None]
    newest = torch.where(block.row, times, -1).cummax(0).values.clamp(min=0)
    came = block.row.gather(0, newest) & (block.at.gather(0, newest) == times)
    reward = torch.where(came, block.reward.gather(0, newest).double(), 0.0)
    return until_next(block, of_players(block, reward))
