"""Plots as data: what curves.js draws. Values stay as the results have them; `div` is what the axis divides by."""

import math

from page import count, figure

MOST_POINTS = 600


def axis(title, unit="", scale="linear", div=1.0, zero=True):
    return {"title": title, "unit": unit, "scale": scale, "div": div, "zero": zero}


def tokens(title="tokens"):
    return axis(title, "tokens", "log", zero=False)


def of_bytes(values, title="memory", steep=False):
    """An axis of bytes in the unit that the largest of values asks for; steep: logarithmic where they differ by much."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v)]
    most = max(sizes, default=0)
    name, div = next(((n, d) for n, d in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if most >= d), ("bytes", 1))
    scale = "log" if steep and sizes and most > 20 * min(sizes) > 0 else "linear"
    return axis(f"{title}, {name}", name, scale, div)


def point(x, y, text, low=None, high=None):
    """text: what the tip says of it; low, high: the ends of its interval."""
    return [x, y, low, high, text]


def series(name, points, mark="line", style="s0"):
    """Points without x or y are left out. mark: line (with its points), points, or limit, a line that has points for the
    tip alone."""
    good = [p for p in points if all(v is not None and math.isfinite(v) for v in p[:2])]
    return {"name": name, "mark": mark, "style": style, "points": good}


def plot(kind, title, caption, x, y, lines):
    """A plot, or None where no series has a point. kind: what it shows, for the page's tests and links."""
    lines = [s for s in lines if s["points"]]
    return {"kind": kind, "title": title, "caption": caption, "x": x, "y": y, "series": lines} if lines else None


def thin(points, value):
    """At most MOST_POINTS of points, in order: of each stretch the one where value is largest, so that no peak is lost."""
    if len(points) <= MOST_POINTS:
        return points, 1
    step = math.ceil(len(points) / MOST_POINTS)
    known = [(value(p) if value(p) is not None else -math.inf, i) for i, p in enumerate(points)]
    return [points[max(known[i:i + step], key=lambda v: v[0])[1]] for i in range(0, len(points), step)], step


class Plots:
    """The plots of a page: each is told to the template by its number."""

    def __init__(self):
        self.all = []

    def add(self, made):
        if made is None:
            return None
        self.all.append(made)
        return len(self.all) - 1


def per_second(v):
    return f"{figure(v)} tok/s"


def at(n, what="tokens"):
    return f"{count(n)} {what}"
