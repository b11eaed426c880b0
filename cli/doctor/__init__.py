"""`multislice doctor`: what keeps a deployed stack from working, in eight groups of checks.

A check passes, fails and says what repairs it, or is skipped and says why. Nothing is changed.
"""
