"""Commands of the workflows in `.github`: `python -m cli.ci COMMAND`."""
