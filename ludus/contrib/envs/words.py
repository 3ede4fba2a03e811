"""What players of a game know in words, apart from the game: what is copied, or sent to another process, for agents that read text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """Texts of a moment of a game.

    Attributes:
        texts: By player.
        move_names: By action; () where moves have no names.
    """

    texts: tuple[str, ...]
    move_names: Sequence[str] = ()

    def text(self, player: int) -> str:
        """Return what a player knows."""
        return self.texts[player]
