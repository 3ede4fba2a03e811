"""Wrappers: plain functions that take a vector of environments and return one. `ludus.envs.wrappers.base` says how to write one."""

from ludus.envs.wrappers.masks import mask_actions
from ludus.envs.wrappers.observations import (
    agent_ids,
    channels_first,
    flatten_observation,
    frame_stack,
    grayscale,
    resize,
    scale_observation,
)
from ludus.envs.wrappers.player_groups import group_players, joint_state
from ludus.envs.wrappers.registry import WRAPPERS, wrap
from ludus.envs.wrappers.rewards import clip_reward, scale_reward, sign_reward, time_limit

__all__ = [
    "WRAPPERS",
    "agent_ids",
    "channels_first",
    "clip_reward",
    "flatten_observation",
    "frame_stack",
    "grayscale",
    "group_players",
    "joint_state",
    "mask_actions",
    "resize",
    "scale_observation",
    "scale_reward",
    "sign_reward",
    "time_limit",
    "wrap",
]
