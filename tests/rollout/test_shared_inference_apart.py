"""An inference server in a process of its own: asked by several, killed in the middle of a request, or left by who asked."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from ludus.core.errors import PartDied, PolicyError, RunError
from ludus.core.types import ActionRequests, PolicyOutput, PolicyRef, PolicySpec
from ludus.rollout.host import PolicyMessage
from ludus.rollout.inference.remote import RemoteBank
from ludus.rollout.inference.server import InferenceServer, ServerSpec
from ludus.testing.fakes import TEAM, CountingPolicy, ScriptedEnv

pytestmark = pytest.mark.slow
SPEC = ScriptedEnv([TEAM], 1).spec
ROWS = 4


class Odd(CountingPolicy):
    """What it is told to do: config `does`, with a file `marker` to say that it does it."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")

    def act(self, observation, mask, memory, noise, *, mode="explore"):
        does, marker = self.spec.config.get("does"), Path(self.spec.config["marker"])
        if does == "hang":
            marker.touch()
            time.sleep(600)
        if does == "raise":
            raise PolicyError("odd")
        assert observation.flags.writeable
        return PolicyOutput(
            np.full(len(observation), len(observation), np.int32), np.zeros(len(observation), np.float32), memory + 1
        )


class Client:
    """A worker that asks for so many rows."""

    def __init__(self, name: str) -> None:
        self.bank = RemoteBank(SPEC, ROWS, client=name)

    def process(self) -> int:
        return os.getpid()

    def play(self, server, policies, steps: int, width: int = 1) -> list[int]:
        """How many rows were evaluated together in each step, as `Odd` tells."""
        self.bank.server = server
        self.bank.load(policies)
        slots = np.arange(ROWS, dtype=np.int32)
        self.bank.bind(1, slots, np.zeros(ROWS, np.int32))
        zeros = np.zeros(ROWS, np.float32)
        due = ActionRequests(slots, np.zeros((ROWS, width), np.float32), None, zeros, zeros == 1)
        noise = np.zeros((ROWS, 1), np.float32)
        told = [int(self.bank.act(1, due, noise).action[0]) for _ in range(steps)]
        memory = self.bank.memory(1, slots, 0)
        assert memory is not None
        assert (memory == steps - 1).all()
        return told


@pytest.fixture
def runtime(runtime_apart):
    return runtime_apart


class Set:
    """A server, and who asks it."""

    def __init__(self, runtime, folder: Path, *, clients: int, max_wait: float, **options) -> None:
        self.runtime, self.marker = runtime, folder / "marker"
        self.server = self.spawn_server(clients, max_wait=max_wait, **options)
        self.clients = [runtime.spawn(Client, f"client {k}", restarts=1) for k in range(clients)]

    def spawn_server(self, clients: int, **options):
        spec = ServerSpec(self.runtime.fetch, callers=clients, **options)
        return self.runtime.spawn(InferenceServer, spec, restarts=1, concurrency=clients + 2)

    def policy(self, version: int, does: str = ""):
        spec = PolicySpec(f"{__name__}:Odd", {"does": does, "marker": str(self.marker)})
        return PolicyRef(0, "odd", version), self.runtime.put(PolicyMessage(Odd(spec)))

    def play(self, client: int, policies, *, steps: int, width: int = 1):
        peer = self.runtime.peer(self.server)
        return self.runtime.call(self.clients[client], "play", peer, policies, steps, width)

    def counters(self):
        return self.runtime.get(self.runtime.call(self.server, "counters"))

    def wait_for_marker(self) -> None:
        while not self.marker.exists():
            time.sleep(0.01)
        self.marker.unlink()

    def process(self) -> int:
        """Of the server."""
        self.runtime.get(self.runtime.call(self.server, "ready"))
        life = self.server.life
        if not life.process:
            life.look()  # of Ray
        return life.process


@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_rows_of_several_workers_are_evaluated_together(runtime, tmp_path: Path) -> None:
    made = Set(runtime, tmp_path, clients=2, max_wait=2.0)
    policies = [made.policy(1)]
    told = [[], []]
    for steps in (
        1,
        300,
    ):  # their processes are there by the second time; whoever comes alone is answered alone, until they have met
        refs = [made.play(client, policies, steps=steps) for client in range(2)]
        for client, ref in enumerate(refs):
            told[client] += runtime.get(ref, timeout=120)
    assert set(told[0] + told[1]) <= {ROWS, 2 * ROWS}
    assert told[0].count(2 * ROWS) == told[1].count(2 * ROWS) > 0
    counters = made.counters()
    assert counters["requests"] == 602
    assert counters["rows"] == 602 * ROWS
    assert counters["fetched"] == 1
    assert counters["batches"] == 602 - told[0].count(2 * ROWS)


def test_large_batches_cross_processes_in_pieces(runtime, tmp_path: Path) -> None:
    made = Set(runtime, tmp_path, clients=1, max_wait=0.0, max_batch=3)  # a request is larger than a batch
    policies = [made.policy(1)]
    for width, together in ((1, ROWS), (15_000, ROWS), (100_000, ROWS)):
        assert runtime.get(made.play(0, policies, steps=2, width=width), timeout=120) == [together] * 2
    assert made.counters()["fetched"] == 1


def test_a_server_that_is_killed_while_it_evaluates(runtime, tmp_path: Path) -> None:
    made = Set(runtime, tmp_path, clients=2, max_wait=0.0)
    good, hanging = made.policy(1), made.policy(2, "hang")
    assert runtime.get(made.play(0, [good], steps=1), timeout=120) == [ROWS]
    refs = [made.play(client, [hanging], steps=1) for client in range(2)]
    made.wait_for_marker()
    os.kill(made.process(), signal.SIGKILL)
    for ref in refs:
        with pytest.raises(PartDied, match="part 'InferenceServer', which was asked for something, died before"):
            runtime.get(ref, timeout=60)
    assert [runtime.incarnation(client) for client in made.clients] == [0, 0], "the workers are alive"
    with pytest.raises(PartDied, match="0 of 1 restarts are left"):
        made.counters()
    assert runtime.get(made.play(0, [good], steps=2), timeout=120) == [ROWS] * 2
    assert made.counters() == {"requests": 2, "rows": 2 * ROWS, "batches": 2, "fetched": 2}  # and what is still bound


@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_a_worker_that_is_killed_while_its_request_waits(runtime, tmp_path: Path) -> None:
    made = Set(runtime, tmp_path, clients=2, max_wait=2.0)
    good, hanging = made.policy(1), made.policy(2, "hang")
    for client in range(2):
        runtime.get(made.play(client, [good], steps=1), timeout=120)
    process = runtime.get(runtime.call(made.clients[0], "process"))
    dying = made.play(0, [hanging], steps=1)
    made.wait_for_marker()  # its request is in a batch that takes for ever, so that the other's waits, too
    waiting = made.play(1, [good], steps=1)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(PartDied, match="'Client' died before"):
        runtime.get(dying, timeout=60)
    assert runtime.wait([waiting], timeout=0.2)[0] == []
    runtime.restart(made.server)  # what hangs is given up; the driver plays again
    with pytest.raises(PartDied, match="'InferenceServer', which was asked"):
        runtime.get(waiting, timeout=60)
    refs = [made.play(client, [good], steps=20) for client in range(2)]
    assert [len(runtime.get(ref, timeout=120)) for ref in refs] == [20, 20]


@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_a_policy_that_raises_and_a_server_that_is_closed(runtime, tmp_path: Path) -> None:
    made = Set(runtime, tmp_path, clients=2, max_wait=0.01)
    good, odd = made.policy(1), made.policy(2, "raise")
    refs = [made.play(0, [good], steps=30), made.play(1, [odd], steps=30)]
    assert len(runtime.get(refs[0], timeout=120)) == 30
    with pytest.raises(PolicyError, match="odd"):
        runtime.get(refs[1], timeout=120)
    assert runtime.get(made.play(1, [good], steps=1), timeout=60) == [ROWS]
    runtime.get(runtime.call(made.server, "close"))
    with pytest.raises(RunError, match="this inference server is closed"):
        runtime.get(made.play(0, [good], steps=1), timeout=60)
