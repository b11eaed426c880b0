"""Networks, clusters and controllers that exist already: what the stack needs of them, and what it leaves alone."""
