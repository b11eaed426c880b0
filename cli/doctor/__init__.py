"""`multislice doctor`: what is in the way of a stack that stands, in eight groups of checks.

Each check says ok, what is at fault and what repairs it, or why nobody was asked. Nothing is changed.
"""
