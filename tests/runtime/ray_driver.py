"""A driver that starts a local Ray and ends in one of several ways; run by test_ray_drivers as `python ray_driver.py END`."""

import os
import signal
import sys


def main(end):
    from ludus.contrib.ray import ray_session
    from ludus.contrib.ray.ray_runtime import RayRuntime
    from ludus.testing.runtime import CounterActor

    made = ray_session._short_folder

    def short_folder():
        folder = made()
        print(folder, flush=True)
        return folder

    ray_session._short_folder = short_folder
    runtime = RayRuntime()
    parts = [runtime.spawn(CounterActor, 0) for _ in range(2)]
    for part in parts:
        runtime.get(runtime.call(part, "add", 1))
    busy = [runtime.call(part, "slow", 600) for part in parts]
    print("busy", flush=True)
    if end != "wait":
        sys.stdin.readline()
    if end == "exit":
        sys.exit(5)
    if end == "abort":
        os.abort()
    if end in ("raylet", "gcs_server"):
        import ray

        os.kill(ray._private.worker._global_node.all_processes[end][0].process.pid, signal.SIGKILL)
        while True:  # it computes, and asks Ray for nothing
            sum(range(10_000))
    runtime.get(busy[0])  # until a signal comes


if __name__ == "__main__":
    main(sys.argv[1])
