"""Fixtures of the program's tests, for its plans are what the rules are held against."""

from tests.infra.conftest import program, two_teams

__all__ = ["program", "two_teams"]
