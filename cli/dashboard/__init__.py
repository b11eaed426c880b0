"""`multislice dashboard`: a deployed stack and the reports of its jobs, as pages that this machine serves to itself."""
