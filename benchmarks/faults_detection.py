"""Seconds until Ray reports a lost node of a simulated cluster, with its own settings and with shorter ones.

    python -m benchmarks.faults_detection

killed: the machine is there and its processes are not. silent: they say nothing, as those of a machine without power or network.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.faults_cluster import processes_of
from benchmarks.faults_processes import kill

SHORTER = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
"""For `ray start --head --system-config='{...}'`."""
_LONGEST = 150.0


def seconds(how: str, settings: dict[str, Any]) -> float:
    """From the loss of one of two nodes until Ray says so."""
    import ray
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster()
    options = {"num_cpus": 1, "object_store_memory": 10**8, "include_dashboard": False}
    cluster.add_node(**options, _system_config=settings)
    leaf = cluster.add_node(**options)
    ray.init(address=cluster.address, log_to_driver=False)
    time.sleep(8)  # the first check comes some time after a node has joined
    lost = processes_of(leaf)
    begun = time.monotonic()
    for process in lost:
        os.kill(process, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    nodes: Any = ray.nodes
    while sum(node["Alive"] for node in nodes()) > 1 and time.monotonic() < begun + _LONGEST:
        time.sleep(0.05)
    took = time.monotonic() - begun
    kill(lost)
    ray.shutdown()
    cluster.shutdown()
    return took


def main(argv: list[str]) -> int:
    if argv:
        how, which = argv
        print(f"{seconds(how, dict(SHORTER) if which == 'shorter' else {}):.1f}")
        return 0
    print(f"{'a node is':12}{'Ray as it is':>14}{'shorter':>14}   seconds until it is reported")
    for how in ("killed", "silent"):
        took = []
        for which in ("default", "shorter"):
            with tempfile.TemporaryDirectory(prefix="lf-", dir="/tmp", ignore_cleanup_errors=True) as folder:
                line = [sys.executable, "-m", "benchmarks.faults_detection", how, which]
                environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled"}
                done = subprocess.run(
                    line, env=environment, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True
                )
                took.append(done.stdout.split()[-1] if done.stdout else "failed")
        print(f"{how:12}{took[0]:>14}{took[1]:>14}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
