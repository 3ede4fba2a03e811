"""The `ludus` command, one file per command."""
