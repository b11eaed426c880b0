"""Compile a training job for its chips without having one, and account for what the program does."""
