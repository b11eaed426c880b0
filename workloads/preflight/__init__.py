"""Compiles a training job for its chips on a machine without them, and calculates what the program does."""
