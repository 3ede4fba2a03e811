import pytest
from bots_here import BotsHere


@pytest.fixture
def bots_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bots play in the process of the tests."""
    for user in ("rollout.bot_process", "tournament.pool"):
        monkeypatch.setattr(f"ludus.{user}.BotProcess", BotsHere)
