"""The content of the training image: the job specification, its presets and the trainer."""
