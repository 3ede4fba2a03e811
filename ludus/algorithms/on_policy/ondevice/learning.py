"""Acting and learning where the learner's networks lie: rows of a `Block` become a `Batch` there, as `Transitions` makes one of
trajectories, and what goes backwards through time is a scan over all rows (`returns.scanned`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import masked_log_softmax
from ludus.algorithms.common.returns import scanned
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.model import Acted, ActingModel, Inputs, Model, Settings
from ludus.replay.blocks import Block, BlockRows, of_players, placed_where, until_next

_BY_NETWORK = ("actor_critic", "torch")
"""Kinds of policies that draw from what their network answers, and do nothing else."""


def on_device_unsupported_reason(model: Model, context: LearnerContext, config: Settings) -> str:
    """What of a learner is done on the host only; "": nothing."""
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


class InPlace:
    """A model that acts, and whose rows are put together, where it learns."""

    def __init__(self, config: Settings, model: ActingModel, inputs: Inputs, context: LearnerContext) -> None:
        self._config, self._model, self._inputs = config, model, inputs
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)

    # ------------------------------------------------------------------------------------------ acting

    @torch.no_grad()
    def table(self) -> Tensor:
        """As `SupportsOnDevice.table`."""
        return masked_log_softmax(self._outputs(self._states), self._inputs.legal)

    @torch.no_grad()
    def act(self, x: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """As `SupportsOnDevice.act`."""
        out = self._outputs(self._inputs(x))
        action = self._model.distribution.sample(out, mask, generator)
        return action, self._model.distribution.log_prob(out, action, mask).float()

    def _outputs(self, x: Tensor) -> Tensor:
        with self._model.placement.products():
            return self._model.outputs(x).float()

    # ------------------------------------------------------------------------------------------ rows

    @torch.no_grad()
    def batch(self, block: Block, progress: float) -> tuple[Batch, dict[str, Tensor]]:
        """As `Transitions.batch`. progress: of the budget."""
        rows, config, model = BlockRows.of(block), self._config, self._model
        observation, state = _rows(block.observation, rows), shown(_rows(block.state, rows))
        x, mask = self._inputs(observation), self._inputs.mask(observation, _rows(block.mask, rows))
        rewards = team_rewards(block) if config.team_rewards else block.reward.double()
        action = _rows(block.action, rows)
        action = action.long() if model.actions else action
        logp = _rows(block.logp, rows)
        acted = Acted(x, mask, action, logp)
        reward = _rows(rewards, rows) * self._scale
        reward = model.rewards_in_place(reward, progress, acted=acted, rows=rows, block=block)
        values = self._values_of_states()
        value = self._values(observation, state, values)
        following = torch.cat([value[1:], value[:1]])
        if block.last is not None:
            last = self._values(block.last, shown(block.last_state), values)
            following = torch.where(rows.cut, last[rows.slot], following)
        after = torch.where(rows.ended, self._finals(block, rows, values), following)
        goes_on = (~(rows.ended | rows.cut)).double()
        delta = reward + config.gamma * after - value
        advantage = scanned(delta, config.gamma * config.gae_lambda * goes_on, longest=len(block.row))
        batch = Batch(
            *acted,
            advantage=advantage.float(),
            target=(advantage + value).float(),
            value=value.float(),
            state=state,
        )
        ends = rows.ended | rows.cut
        return batch, {"reward": reward, "ends": ends, "after": after} if config.correction == "vtrace" else {}

    @property
    def _states(self) -> Tensor:
        """float32[I, *shape] of an enumerated game."""
        return self._inputs.states.reshape(-1, *self._model.shape)

    def _values_of_states(self) -> Tensor | None:
        """float64[I] of an enumerated game, in which each is evaluated once."""
        return None if self._model.table is None else self._model.values(self._states, None, None, None)[0].double()

    def _values(self, observation: Tensor, state: Tensor | None, values: Tensor | None) -> Tensor:
        """float64[n]; 0 for ids of -1, of which nothing is known."""
        if values is None:
            return self._model.values(self._inputs(observation), None, None, state)[0].double()
        return torch.where(observation >= 0, values[self._inputs.index(observation)], 0.0)

    def _finals(self, block: Block, rows: BlockRows, values: Tensor | None) -> Tensor:
        """float64[n]: of what follows the end of an episode: 0, or of the final observation of one that was truncated."""
        out = torch.zeros(len(rows.where), dtype=torch.float64, device=rows.where.device)
        if block.final is None or not block.num_truncated:
            return out
        cut_short = placed_where(rows.ended & ~block.terminated.flatten()[rows.where], block.num_truncated)
        where = block.at.flatten()[rows.where[cut_short]] * block.row.shape[1] + rows.slot[cut_short]
        final = block.final.flatten(0, 1).index_select(0, where)
        state = None if block.final_state is None else block.final_state.flatten(0, 1).index_select(0, where)
        return out.index_copy_(0, cut_short, self._values(final, shown(state), values))


def _rows(column: Any, rows: BlockRows) -> Any:
    """[K, C, …] -> [n, …]; None stays."""
    return None if column is None else column.flatten(0, 1).index_select(0, rows.where)


def shown(state: Tensor | None) -> Tensor | None:
    """States [n, *shape] as `ludus.algorithms.common.team_specs.seen` shows them to one seat: float32[n, width], of uint8 in 0 … 1."""
    if state is None:
        return None
    flat = state.flatten(1).float()
    return flat / 255.0 if state.dtype == torch.uint8 else flat


def team_rewards(block: Block) -> Tensor:
    """float64[K, C]: as `ludus.algorithms.on_policy.multi_agent.team_rewards`, what the whole team received after each of its agents'
    decisions, up to the agent's next one, or to the end of the episode. A row's reward counts when its last part has come."""
    times = torch.arange(len(block.row), device=block.row.device)[:, None]
    newest = torch.where(block.row, times, -1).cummax(0).values.clamp(min=0)
    came = block.row.gather(0, newest) & (block.at.gather(0, newest) == times)
    reward = torch.where(came, block.reward.gather(0, newest).double(), 0.0)
    return until_next(block, of_players(block, reward))
