"""Where things lie in the checkpoint bucket, by who may write them.

A job of the stack keeps its runs in a folder of its name. Everything else of a team lies in one folder: calls of
functions, compiled programs, and what jobs keep that its members submit themselves. The pods of the team's namespace
write these and no others (`infra.identity`).
"""

TEAMS = "teams"
"""A job of the stack cannot have this name."""

ON_HOSTS = "all_nodes"
"""Stands for the pods that act as their node, in place of a namespace; no namespace has such a name."""


def of_team(namespace: str) -> str:
    """The folder of a team, by its namespace."""
    return f"{TEAMS}/{namespace}"


def of_call(namespace: str, call: str) -> str:
    """What is sent to the hosts of a call of a function, and what they leave."""
    return f"{of_team(namespace)}/calls/{call}"


def of_programs(namespace: str) -> str:
    """Compiled programs, which every later start of the team's jobs finds, and runs without a look at their content."""
    return f"{of_team(namespace)}/compile-cache"
