"""Games that people look at and play: tables, boards, replays, game trees."""
