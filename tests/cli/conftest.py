"""The made-up runs of the store's tests serve the commands' tests too, and the policies of the tests of whole runs."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "storage"), str(TESTS / "runs")]
