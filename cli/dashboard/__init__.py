"""`multislice dashboard`: a stack that stands, on one page that this machine serves to itself."""
