"""Values in the text format of Prometheus."""

from prometheus_client.parser import text_string_to_metric_families

type Numbers = dict[str, dict[str, float]]
"""By name and by value of the one label."""


def numbers(text: str) -> Numbers:
    """The values of each family; a name or a label that occurs twice fails."""
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            (label,) = sample.labels.values() or ("",)
            assert label not in found.setdefault(sample.name, {})
            found[sample.name][label] = sample.value
    return found
