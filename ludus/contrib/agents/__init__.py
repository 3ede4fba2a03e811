"""Agents from elsewhere (`ludus.policies.agents`): programs, services and files of other libraries."""
