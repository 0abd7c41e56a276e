"""Lines of an order, and what they come to."""

from dataclasses import dataclass
from decimal import Decimal

from .money import amount, apply_discount, round_cents


@dataclass(frozen=True)
class Line:
    """So many of one thing."""

    name: str
    price: Decimal | str
    quantity: int = 1

    def __post_init__(self):
        if self.quantity < 1:
            raise ValueError(f"{self.name}: a quantity is 1 or more")


def line_total(line):
    """What a line costs before any discount."""
    return round_cents(amount(line.price) * line.quantity)


def order_total(lines, discount=0):
    """What an order costs after its discount."""
    total = sum((line_total(line) for line in lines), Decimal(0))
    return apply_discount(total, discount)
