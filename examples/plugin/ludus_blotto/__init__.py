"""A plug-in of Ludus: its pyproject.toml registers what the modules here hold."""
