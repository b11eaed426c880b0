"""The part of a document that a test makes, between two lines that say so."""


def with_part(document: str, begin: str, made: str, end: str) -> str:
    """The document with `made` between the lines `begin` and `end`.

    Raises:
        ValueError: it has not each of them once, in this order.
    """
    before, *rest = document.split(begin)
    after = [] if len(rest) != 1 else rest[0].split(end)[1:]
    if len(after) != 1 or end in before:
        raise ValueError(f"expected {begin!r} and then {end!r}, once each")
    return f"{before}{begin}{made}{end}{after[0]}"
