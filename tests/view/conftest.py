"""The made-up runs of the store's tests serve the report's tests too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
