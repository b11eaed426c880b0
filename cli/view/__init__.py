"""What a person sees while a stack comes up: one frozen snapshot, its reducers, and its rendering."""
