"""Written scenes: the dictionary that the engine's core gives, for three bodies a side, with what is to be different."""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.contrib.football.view import LEFT, METRES, NOBODY, SideView, side_view

__all__ = ["kicked", "raw", "seen"]


def raw(**changes: Any) -> dict[str, Any]:
    """A quiet moment: the ball lies in the middle, nobody has it, nobody moves; the left steers bodies 1 and 2, the right body 2."""
    scene: dict[str, Any] = {
        "ball": np.array([0.0, 0.0, 0.11]),
        "ball_direction": np.zeros(3),
        "ball_rotation": np.zeros(3),
        "ball_owned_team": NOBODY,
        "ball_owned_player": -1,
        "left_team": np.array([[-1.0, 0.0], [-0.1, 0.1], [-0.2, -0.2]]),
        "right_team": np.array([[1.0, 0.0], [0.3, 0.0], [0.2, 0.2]]),
        "score": [0, 0],
        "steps_left": 3000,
        "game_mode": 0,
        "left_agent_controlled_player": [1, 2],
        "right_agent_controlled_player": [2],
        "left_agent_sticky_actions": np.zeros((2, 10), np.uint8),
        "right_agent_sticky_actions": np.zeros((1, 10), np.uint8),
        "left_team_designated_player": 1,
        "right_team_designated_player": 2,
    }
    for side in ("left", "right"):
        scene[f"{side}_team_direction"] = np.zeros((3, 2))
        scene[f"{side}_team_tired_factor"] = np.zeros(3)
        scene[f"{side}_team_yellow_card"] = np.zeros(3, np.bool_)
        scene[f"{side}_team_active"] = np.ones(3, np.bool_)
        scene[f"{side}_team_roles"] = np.array([0, 1, 9])
    unknown = changes.keys() - scene.keys()
    assert not unknown, unknown
    return scene | changes


def seen(side: int = LEFT, **changes: Any) -> SideView:
    """The scene as a side sees it."""
    return side_view(raw(**changes), side=side)


def kicked(x: float, y: float, z: float = 0.0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The ball's direction for so many metres a step."""
    return np.array([x / METRES[0], y / METRES[1], z])
