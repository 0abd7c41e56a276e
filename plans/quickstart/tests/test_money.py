"""Rounding, splitting, tax and discounts."""

from decimal import Decimal

import pytest

from prices import apply_discount, round_cents
from prices.money import add_tax, split


@pytest.mark.parametrize(
    ("value", "rounded"),
    [("1", "1.00"), ("0.126", "0.13"), ("0.124", "0.12"), ("-0.126", "-0.13")],
)
def test_amounts_are_rounded_to_cents(value, rounded):
    assert round_cents(value) == Decimal(rounded)


def test_half_a_cent_is_rounded_up():
    assert round_cents("0.125") == Decimal("0.13")
    assert round_cents("2.665") == Decimal("2.67")


def test_floats_are_refused():
    with pytest.raises(TypeError):
        round_cents(0.1)


def test_a_split_loses_no_cent():
    assert split("10.00", 3) == [Decimal("3.34"), Decimal("3.33"), Decimal("3.33")]


def test_tax_is_a_percentage():
    assert add_tax("100.00", 19) == Decimal("119.00")


def test_no_discount_changes_nothing():
    assert apply_discount("19.99", 0) == Decimal("19.99")


def test_a_discount_is_a_percentage():
    assert apply_discount("50.00", 10) == Decimal("45.00")


def test_a_full_discount_leaves_nothing():
    assert apply_discount("50.00", 100) == Decimal("0.00")
