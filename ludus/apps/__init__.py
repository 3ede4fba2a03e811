"""Applications on the library: episodes in detail, play with people, the page, the hub, experiments. The library imports none."""
