"""Reads the text format of Prometheus, as strictly as the trainer writes it."""

import re

type Numbers = dict[str, dict[str, float]]
"""Numbers by family and by value of its label."""

_SAMPLE = re.compile(r'([a-z_]+)(?:\{[a-z_]+="([^"\\\n]*)"\})? (\S+)')


def numbers(text: str) -> Numbers:
    """Parse a text where every family has one HELP and one TYPE before its samples."""
    found: Numbers = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert line.split()[2] not in found
            found[line.split()[2]] = {}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert found[name] == {}
            assert (kind == "counter") == name.endswith("_total")
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            name, label, number = sample.groups(default="")
            assert label not in found[name]
            found[name][label] = float(number)
    return found
