"""Renders the table of rules in docs/reference/policy.md from the rules."""

from policy.rule import About
from policy.rules import TABLES
from tests.made_part import with_part

BEGIN, END = "<!-- rules: made by tests/documents/policy_reference.py -->\n", "<!-- end of rules -->\n"
_COLUMNS = "| Rule | Requirement | Severity | Effect |\n|---|---|---|---|\n"


def with_table(document: str) -> str:
    """Return the document with the current table of rules."""
    return with_part(document, BEGIN, _table(), END)


def _table() -> str:
    parts: list[str] = []
    for heading, rules in TABLES.items():
        parts.append(f"\n### {heading} ({len(rules)})\n\n{_COLUMNS}")
        parts += [_row(rule) for rule in rules]
    return "".join(parts) + "\n"


def _row(about: About) -> str:
    effect = "stops" if about.level == "mandatory" else "warns"
    return f"| [`{about.id}`]({about.link}) | {about.title}. {about.why} | {about.severity} | {effect} |\n"
