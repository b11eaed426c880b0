"""How this group describes its rules."""

from policy.rule import About, Group, Level, Severity


def must(rule: str, severity: Severity, title: str, *, why: str, fix: str, link: str) -> About:
    """A rule that stops a preview."""
    return About(rule, Group.SECURITY, severity, Level.MANDATORY, title, why, fix, link)


def should(rule: str, severity: Severity, title: str, *, why: str, fix: str, link: str) -> About:
    """A rule that warns."""
    return About(rule, Group.SECURITY, severity, Level.ADVISORY, title, why, fix, link)
