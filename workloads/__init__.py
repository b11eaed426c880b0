"""What the training image ships: the job specification, its presets and the trainer."""
