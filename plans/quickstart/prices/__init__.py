"""What a customer pays."""

from .lines import Line, line_total, order_total
from .money import apply_discount, round_cents

__all__ = ["Line", "apply_discount", "line_total", "order_total", "round_cents"]
