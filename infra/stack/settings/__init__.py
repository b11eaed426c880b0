"""Stack files: their sections, how they are read, and the rules between them."""
