"""`multislice confirm` records which assumptions about Google Cloud and TPUs hold on a deployed stack."""
