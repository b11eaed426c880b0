"""Trainers of other frameworks, each a container job with `records`; docs/how-to/your-trainer.md says how."""
