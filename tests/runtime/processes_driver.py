"""A driver with busy parts that ends in one of several ways; run by test_process_runtime as `python processes_driver.py END`."""

import os
import signal
import sys


def main(end):
    sys.modules["ray"] = None  # whoever imports it fails
    from ludus.runtime.inprocess import build_runtime
    from ludus.testing.runtime import CounterActor

    runtime = build_runtime("processes")
    parts = [runtime.spawn(CounterActor, 0, restarts=1) for _ in range(3)]
    for part in parts:
        runtime.get(runtime.call(part, "add", 1))
    busy = [runtime.call(part, "slow", 600) for part in parts]
    kept = runtime.put(b"x" * 10**7)
    os.kill(parts[0].life.process, signal.SIGSTOP)
    print(runtime._server.popen.pid, *(part.life.process for part in parts), flush=True)
    if end != "wait":
        sys.stdin.readline()
    if end == "exit":
        sys.exit(5)
    if end == "fork":
        if os.fork():
            os._exit(3)
        os.close(1)
        os.close(2)
        signal.pause()  # holds all of the driver's sockets open
    runtime.get(busy[0])  # until a signal comes
    return kept


if __name__ == "__main__":
    main(sys.argv[1])
