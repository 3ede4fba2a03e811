"""Environments of Ludus in other packages' interfaces: Gymnasium's, Stable-Baselines3's and PettingZoo's."""
