"""Property tests try the same examples in every run, so that a change is what makes one fail; `make search` tries others."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", print_blob=True)
settings.load_profile("fixed")
