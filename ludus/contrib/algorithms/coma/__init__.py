"""COMA: policy gradients of a team with counterfactual baselines."""
