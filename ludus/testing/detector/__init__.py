"""Faults of environments that keep the contract of `ludus.envs.base`: seeds, ends, masks, effects, rewards, games, costs.

one play of random legal actions -> `Recording` -> detectors that only read it
copies of one environment in one state -> probes that play what the recording could not
"""
