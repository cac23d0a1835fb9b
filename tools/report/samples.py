"""Figures of `dsf bench` with their intervals: {"median", "low", "high"}."""

import math

from results import Refused, name_of


def measured(f, key):
    """A figure with its interval: the bootstrap's where the line tells one, else half the distance between the quartiles
    to either side. {"median", "low", "high"}."""
    if isinstance(f.value.get(key), dict):
        inner = f.object(key)
        return bounded(inner, inner.number("median"))
    return interval(f.number(key), math.nan)


def bounded(f, median):
    """The bootstrap interval of median, or the quartiles'."""
    if not f.has("interval"):
        return interval(median, f.number("spread"))
    ends = f.numbers("interval")
    if len(ends) != 2 or not ends[0] <= ends[1]:
        raise Refused(f"{f.where}.interval: {name_of(f.value['interval'])}, allowed are two numbers, the lower first")
    return {"median": median, "low": ends[0], "high": ends[1]}


def interval(median, spread):
    if math.isnan(spread):
        return {"median": median, "low": median, "high": median}
    return {"median": median, "low": median * max(0.0, 1 - spread), "high": median * (1 + spread)}


def scaled(m, factor):
    return {key: value * factor for key, value in m.items()}


def time_of(f):
    """Milliseconds; spread and interval of such a line stand in the line itself."""
    return scaled(bounded(f, f.number("median_ns")), 1e-6)
