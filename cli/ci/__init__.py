"""What the workflows of `.github` call: `python -m cli.ci COMMAND`."""
