"""Numbers in the format of their metric; shares are in per cent, without the sign."""

from __future__ import annotations


def format_number(value: float | None, form: str, empty: str = "–") -> str:
    return empty if value is None else format(value, form).removesuffix("%")


def format_interval(low: float, high: float, form: str) -> str:
    return f"{format_number(low, form)}–{format_number(high, form)}"
