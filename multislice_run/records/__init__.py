"""The files that a run leaves: their writers and readers."""
