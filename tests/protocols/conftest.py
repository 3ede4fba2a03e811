"""These tests use the tools of the tests of whole runs, and the machines of `benchmarks.protocols`."""

import sys
from pathlib import Path

RUNS = Path(__file__).parents[1] / "runs"
if str(RUNS) not in sys.path:
    sys.path.append(str(RUNS))
