"""Trajectories, the tables that learners sample from, and the servers around them."""
