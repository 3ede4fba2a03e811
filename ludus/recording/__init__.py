"""Episodes to look at: images or text of an environment while policies play it.

record_run | record -> Recording -> save (GIF, MP4, text)
"""

from ludus.recording.files import SUFFIXES, save
from ludus.recording.film import Recording, record
from ludus.recording.runs import record_run

__all__ = ["SUFFIXES", "Recording", "record", "record_run", "save"]
