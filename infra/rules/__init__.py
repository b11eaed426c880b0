"""What must hold between the sections of a stack file; `check` has the list."""
