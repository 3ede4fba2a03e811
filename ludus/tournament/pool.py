"""Pieces that bots play, handed out to processes a second or two at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from ludus.core.errors import PartDied
from ludus.core.types import PolicyRef
from ludus.envs.config import Environment
from ludus.policies.bots import BotPolicy
from ludus.rollout.base import EpisodeResults, PlannedEpisodes
from ludus.rollout.bot_players import BotPool, BotStatusCallback
from ludus.rollout.bot_process import BotProcess
from ludus.rollout.host import PolicyMessage
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.tournament.meetings import Chunk, split_chunk

# --------------------------------------------------------------------------------------------------------------------
# What a process is sent that plays a tournament's episodes.


@dataclass(frozen=True, slots=True)
class Setup:
    """Setup of a process: the game, in `num_envs` environments, with these policies and bots. folder: for the logs of agents."""

    settings: Environment
    num_envs: int
    policies: tuple[tuple[PolicyRef, PolicyMessage], ...]
    bots: Mapping[PolicyRef, BotPolicy]
    folder: str = ""

    @property
    def names(self) -> list[str]:
        """Of the bots, in the order in which a worker loads them."""
        return list(dict.fromkeys(policy.bot.text for policy in self.bots.values()))

    def begin(self, status: BotStatusCallback) -> Callable[[PlannedEpisodes], EpisodeResults]:
        """In the process: what plays episodes, and answers with what came of them, in their order."""
        env = self.settings.make(num_envs=self.num_envs)
        worker = RolloutWorker(env, LocalBank(env.spec, env.num_envs), bots=lambda: BotPool(status, folder=self.folder))
        policies = [*((ref, sent.policy) for ref, sent in self.policies), *self.bots.items()]

        def play(episodes: PlannedEpisodes) -> EpisodeResults:
            requests = episodes.requests(self.num_envs)
            return EpisodeResults.joined([worker.play(request, policies).episodes for request in requests])

        return play


_FIRST, _MOST = 16, 4096  # episodes that a process is given at a time
_SECONDS = 2.0  # that they are to take, which is what a kill loses
_LOOK = 0.2  # seconds between two looks at whether a bot thinks for too long


@dataclass(slots=True)
class _Started:
    piece: Chunk
    begun: float


class ProcessPool:
    """Processes in which bots play. record: takes what each brought."""

    def __init__(
        self,
        setup: Setup,
        *,
        workers: int,
        deadline: float,
        restarts: int,
        episodes: Callable[[Chunk], PlannedEpisodes],
        record: Callable[[Chunk, EpisodeResults], None],
    ) -> None:
        """deadline: seconds that a bot may think about a move. restarts: how often a process that died is replaced, in all; its piece is
        played again. episodes: those of a piece."""
        self._setup, self._workers, self._deadline = setup, workers, deadline
        self._episodes, self._record, self._restarts = episodes, record, restarts
        self._replaced = 0
        self._size: dict[str, int] = {}  # by meeting
        self._waiting: list[Chunk] = []
        self._playing: dict[BotProcess, _Started] = {}
        self._idle: list[BotProcess] = []

    def play(self, chunks: Sequence[Chunk]) -> None:
        """Play all of these; the processes stay for more until `close`. Raises PolicyError, with its name, for a bot that raises, makes an
        illegal move or does not answer in time."""
        self._waiting = list(reversed(chunks))
        wanted = min(self._workers, sum(len(split_chunk(chunk, _FIRST)) for chunk in chunks))
        try:
            for _ in range(wanted):
                self._give(self._idle.pop() if self._idle else BotProcess(self._setup))
            while self._playing:
                wait([process.fileno() for process in self._playing], timeout=_LOOK)
                for process in list(self._playing):
                    self._look(process)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        for process in (*self._playing, *self._idle):
            process.close()
        self._playing, self._idle = {}, []

    def _look(self, process: BotProcess) -> None:
        try:
            if not process.answered():
                process.check(self._deadline)
                return
            episodes = process.answer()
        except PartDied as died:
            if not self._restarts:
                raise PartDied(
                    f"{died} Processes of this tournament's bots were replaced {self._replaced} times."
                ) from died
            self._replace(process)
            return
        started = self._playing[process]
        seconds = max(time.monotonic() - started.begun, 1e-6)
        size = int(started.piece.episodes * min(4.0, _SECONDS / seconds))
        self._size[started.piece.pairing.id] = min(_MOST, max(_FIRST, size))
        self._record(started.piece, episodes)
        self._give(process)

    def _replace(self, process: BotProcess) -> None:
        """Play the piece of a process that died in another one: its episodes are the same."""
        self._restarts, self._replaced = self._restarts - 1, self._replaced + 1
        started = self._playing.pop(process)
        process.close()
        other = BotProcess(self._setup)
        self._playing[other] = _Started(started.piece, time.monotonic())
        other.call(self._episodes(started.piece))

    def _give(self, process: BotProcess) -> None:
        """The next piece of work, if there is one."""
        if not self._waiting:
            self._playing.pop(process, None)
            self._idle.append(process)
            return
        whole = self._waiting.pop()
        chunk, *rest = split_chunk(whole, self._size.get(whole.pairing.id, _FIRST))
        if rest:
            left = whole.n - chunk.n
            self._waiting.append(Chunk(whole.pairing, whole.first + chunk.n, left))
        self._playing[process] = _Started(chunk, time.monotonic())
        process.call(self._episodes(chunk))
