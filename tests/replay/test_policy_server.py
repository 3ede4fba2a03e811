"""Versions, durability before announcement, frozen policies, read-only weights."""

import threading

import numpy as np
import pytest

from ludus.core.errors import DataError
from ludus.replay.policy_server import PolicyServer


def weights(value: float):
    return {"w": np.full((2, 2), value, np.float32), "steps": np.array(3)}


def test_versions_and_unchanged_since():
    server = PolicyServer(keep=2)
    for version, value in [(0, 1.0), (1, 2.0), (5, 3.0)]:
        server.publish("p", weights(value), version)
    assert server.latest("p") == 5
    assert server.get("p")["w"][0, 0] == 3.0
    assert server.get("p", 1)["w"][0, 0] == 2.0
    assert server.newest("p", unchanged_since=5) is None
    newest = server.newest("p", unchanged_since=1)
    assert newest.version == 5
    assert newest.weights["w"][1, 1] == 3.0
    with pytest.raises(DataError, match=r"version 0 of policy 'p' is not kept \(kept: \[1, 5\]\)"):
        server.get("p", 0)


def test_unknown_policy_names_the_nearest():
    server = PolicyServer()
    server.publish("0-12", weights(1), 0)
    with pytest.raises(DataError, match="no policy '0-21' is published here; did you mean '0-12'"):
        server.get("0-21")


def test_durable_before_announced():
    server: PolicyServer
    seen: list[tuple[str, int, object]] = []

    def durable(policy, version, written):
        assert not written["w"].flags.writeable
        seen.append((policy, version, server.policies()))

    server = PolicyServer(durable)
    server.publish("p", weights(1), 0)
    assert seen == [("p", 0, ())]
    assert server.policies() == ("p",)


def test_what_is_not_durable_is_not_announced():
    def durable(policy, version, written):
        if version == 1:
            raise OSError("disk full")

    server = PolicyServer(durable)
    server.publish("p", weights(1), 0)
    with pytest.raises(OSError, match="disk full"):
        server.publish("p", weights(2), 1)
    assert server.latest("p") == 0
    server.publish("p", weights(2), 2)
    assert server.latest("p") == 2


def test_readers_do_not_wait_for_a_slow_disk():
    writing, go_on = threading.Event(), threading.Event()

    def durable(policy, version, written):
        if version == 1:
            writing.set()
            assert go_on.wait(10)

    server = PolicyServer(durable)
    server.publish("p", weights(1), 0)
    thread = threading.Thread(target=server.publish, args=("p", weights(2), 1))
    thread.start()
    assert writing.wait(10)
    assert server.latest("p") == 0  # would hang, were it to wait for the writer
    assert server.get("p")["w"][0, 0] == 1
    go_on.set()
    thread.join(10)
    assert server.latest("p") == 1


def test_weights_are_copied_and_read_only():
    server, mine = PolicyServer(), weights(1)
    server.publish("p", mine, 0)
    mine["w"][:] = 9
    got = server.get("p")
    assert got["w"][0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        got["w"][0, 0] = 5


def test_a_retry_counts_once_and_versions_only_go_up():
    calls: list[int] = []
    server = PolicyServer(lambda policy, version, written: calls.append(version))
    server.publish("p", {"w": np.array([np.nan])}, 4)
    server.publish("p", {"w": np.array([np.nan])}, 4)
    assert calls == [4]
    for version, value in [(4, 1.0), (3, np.nan)]:
        with pytest.raises(DataError, match=f"version {version} comes after version 4.*publish 5 or more"):
            server.publish("p", {"w": np.array([value])}, version)
    with pytest.raises(DataError, match="version 4 comes after"):
        server.publish("p", {"w": np.array([np.nan]), "b": np.zeros(1)}, 4)


def test_frozen_policies_take_no_more():
    server = PolicyServer()
    server.publish("p", weights(1), 0)
    server.publish("p", weights(2), 1)
    assert not server.frozen("p")
    assert server.freeze("p") == 1
    assert server.frozen("p")
    with pytest.raises(DataError, match="is frozen at version 1"):
        server.publish("p", weights(3), 2)
    assert server.get("p", 1)["w"][0, 0] == 2


def test_restore_writes_nothing_and_forget_drops():
    server = PolicyServer(lambda policy, version, written: pytest.fail("it wrote"))
    server.restore("p", weights(7), 3, frozen=True)
    assert server.latest("p") == 3
    assert server.frozen("p")
    server.forget("p")
    assert server.policies() == ()
    with pytest.raises(DataError, match="no policy 'p'"):
        server.forget("p")
    with pytest.raises(DataError, match="keep is 0"):
        PolicyServer(keep=0)
