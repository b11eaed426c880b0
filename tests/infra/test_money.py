"""Prices as people read them."""

from infra.money import dollars, per_hour, signed_per_hour


def test_a_price_per_hour_has_the_price_per_day_beside_it() -> None:
    assert per_hour(2.5) == "$2.50 an hour ($60.00 a day)"


def test_a_change_has_its_sign_in_both() -> None:
    assert signed_per_hour(-10) == "-$10.00 an hour (-$240.00 a day)"
    assert signed_per_hour(10) == "+$10.00 an hour (+$240.00 a day)"


def test_an_unknown_amount_is_not_zero() -> None:
    assert dollars(None) == "-"
