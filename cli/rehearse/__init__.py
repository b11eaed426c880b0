"""`multislice rehearse` says whether the Kueue of any cluster would admit a JobSet now."""
