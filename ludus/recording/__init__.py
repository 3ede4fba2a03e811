"""Episodes to look at, or to learn from: what an environment shows while policies play it, and the decisions that they take.

record_run | record -> Recording -> save (GIF, MP4, text)
record_run_trajectories | record_trajectories -> a Parquet file (`ludus.data.parquet` reads it)
"""

from ludus.recording.files import SUFFIXES, save
from ludus.recording.film import Recording, record
from ludus.recording.runs import record_run
from ludus.recording.trajectories import Written, record_run_trajectories, record_trajectories

__all__ = [
    "SUFFIXES",
    "Recording",
    "Written",
    "record",
    "record_run",
    "record_run_trajectories",
    "record_trajectories",
    "save",
]
