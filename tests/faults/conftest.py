"""These tests use the tools of the tests of whole runs, and the loop of `benchmarks.faults`."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
for folder in (TESTS / "runs", TESTS.parent):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
