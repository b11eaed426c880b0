"""What the image runs for a call: one function on every host of some slices."""
