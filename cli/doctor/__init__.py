"""`multislice doctor` runs eight groups of checks to find what keeps a deployed stack from working.

A failed check says how to repair it, and a skipped check says why it was skipped. The checks change nothing.
"""
