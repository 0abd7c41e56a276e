"""Amounts of money: reading, rounding, discounts."""

from decimal import ROUND_HALF_EVEN, Decimal

CENT = Decimal("0.01")


def amount(value):
    """Reads an amount from a Decimal, an int or text. Floats are refused: they are not exact."""
    if isinstance(value, float):
        raise TypeError("write amounts as Decimal or text, not as float")
    return Decimal(value)


def round_cents(value):
    """Rounds an amount to whole cents."""
    return amount(value).quantize(CENT, rounding=ROUND_HALF_EVEN)


def split(total, parts):
    """Splits an amount into parts that differ by one cent at most and sum up to it."""
    if parts < 1:
        raise ValueError("an amount is split into one part or more")
    cents = int(round_cents(total) / CENT)
    share, rest = divmod(cents, parts)
    return [(share + (1 if part < rest else 0)) * CENT for part in range(parts)]


def add_tax(net, rate):
    """Adds a tax given in percent."""
    return round_cents(amount(net) * (100 + amount(rate)) / 100)


def apply_discount(price, discount):
    """Takes a discount off a price."""
    return round_cents(amount(price) - amount(discount))
