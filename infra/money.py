"""Formats US dollars, and prices per hour with the price per day next to it."""

HOURS_PER_DAY = 24


def dollars(amount: float | None) -> str:
    """Return an amount such as `$12.30`, or `-` if the price is unknown."""
    return "-" if amount is None else f"${amount:,.2f}"


def signed(amount: float) -> str:
    """Return an increase such as `+$12.30`, or a decrease such as `-$12.30`."""
    return f"{'-' if amount < 0 else '+'}{dollars(abs(amount))}"


def per_hour(usd_per_hour: float) -> str:
    """Return a price such as `$2.50 an hour ($60.00 a day)`."""
    return f"{dollars(usd_per_hour)} an hour ({dollars(usd_per_hour * HOURS_PER_DAY)} a day)"


def signed_per_hour(usd_per_hour: float) -> str:
    """Return a change of a price such as `+$2.50 an hour (+$60.00 a day)`."""
    return f"{signed(usd_per_hour)} an hour ({signed(usd_per_hour * HOURS_PER_DAY)} a day)"
