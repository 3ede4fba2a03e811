"""What makes two games the same."""

from __future__ import annotations

import json

from ludus.scenario import Environment


def told(settings: Environment, other: Environment) -> str:
    """The id; with all that matters, where another game has the same id."""
    return settings.id if name_of(settings) != name_of(other) else f"{settings.id} {identity(settings)}"


def name_of(settings: Environment) -> str:
    """The id; of OpenSpiel's games with all parameters written out."""
    if not settings.id.startswith("openspiel/"):
        return settings.id
    from ludus.envs.openspiel_games import load_game

    game = load_game(settings.id)
    parameters = ",".join(f"{key}={value}" for key, value in sorted(game.get_parameters().items()))
    return f"openspiel/{game.get_type().short_name}({parameters})"


def identity(settings: Environment) -> str:
    """What makes two games the same: id, options and wrappers, as JSON."""
    parts = {"id": name_of(settings), "options": settings.options, "wrappers": list(settings.wrappers)}
    return json.dumps({key: value for key, value in parts.items() if value}, sort_keys=True, default=str)
