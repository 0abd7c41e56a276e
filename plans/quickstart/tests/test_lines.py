"""Lines and orders."""

from decimal import Decimal

import pytest

from prices import Line, line_total, order_total


def test_a_line_is_price_times_quantity():
    assert line_total(Line("pen", "1.25", 4)) == Decimal("5.00")


def test_a_quantity_below_one_is_refused():
    with pytest.raises(ValueError):
        Line("pen", "1.25", 0)


def test_an_order_sums_its_lines():
    assert order_total([Line("pen", "1.25", 4), Line("ink", "19.99")]) == Decimal("24.99")


def test_an_empty_order_costs_nothing():
    assert order_total([]) == Decimal("0.00")


def test_an_order_takes_its_discount_off():
    lines = [Line("pen", "1.25", 4), Line("ink", "19.99")]
    assert order_total(lines, discount=10) == Decimal("22.49")
