"""Property tests try the same examples in every run, so that a change is what makes one fail; `make search` tries others. Torch has one
thread in each process of the tests, as it has under `make`: more threads than cores wait for each other."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch or numpy

settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", print_blob=True)
settings.load_profile("fixed")
