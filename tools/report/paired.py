"""Two builds measured in alternation (`dsf bench` against another program): lines that say themselves what became slower,
with the interval of the ratio of neighbouring rounds, of the whole and of each operation."""

import math

import changes
import samples

KINDS = ("against", "ab", "ab_verdict")  # the last only sums up


def is_pair(f):
    return f.text("bench") in KINDS


def change_of(f):
    """Percent that the new build takes more, with its interval, from percents or from a ratio."""
    ends = [*f.numbers("interval"), math.nan, math.nan][:2]
    if f.has("ratio"):
        change, low, high = (100 * (v - 1) for v in (f.number("ratio"), *ends))
    else:
        change, low, high = f.number("change_percent"), *ends
    return {"change": change, "low": low, "high": high, "noise": max(change - low, high - change), "verdict": f.text("verdict") or "not told"}


def kernel(f, whole_ns):
    old, new = f.first_number("old_ns", "other_ns"), f.first_number("new_ns", "this_ns")
    delta = (new - old) / 1e3
    return {"op": f.text("op"), "old": old / 1e3, "new": new / 1e3, "delta": delta, "share": 1e5 * delta / whole_ns if whole_ns > 0 else math.nan,
            **change_of(f)}


def time_of(f, whole, side, key):
    """Milliseconds of a side: a sample of its own, or a mean."""
    inner = f.object(side)
    if inner and inner.has("ns"):
        return samples.scaled(samples.measured(inner, "ns"), 1e-6)
    ms = whole.number(key) / 1e6
    return {"median": ms, "low": ms, "high": ms}


def row(f):
    whole = f.object("whole") or f
    old, new = time_of(f, whole, "other", "old_ns"), time_of(f, whole, "this", "new_ns")
    parts = [kernel(x, 1e6 * old["median"]) for x in (*f.objects("parts"), *f.objects("operations"))]
    named = changes.label(f)
    what = f.text("what") or f"{f.text('measured')} {f.text('op')} {f.text('use')} {f.text('model')}"
    slower = [p for p in parts if p["verdict"] == "slower"]
    found = change_of(whole)
    if f.has("refused"):
        found["verdict"] = f"refused: {f.text('refused')}"
    elif slower and found["verdict"] == "no difference":
        found["verdict"] = "slower"  # by one operation that the whole hides
    return {**named, "what": " ".join(what.split()), "old": old, "new": new, "control": math.nan, "by_limit": False, **found,
            "kernels": sorted(parts, key=lambda p: (p["verdict"] != "slower", -abs(p["delta"]) if p["delta"] == p["delta"] else 0))}


def build(lines):
    """The section of all such lines, or None."""
    rows = sorted((row(f) for f in lines if f.text("bench") in KINDS[:2]), key=changes.importance)
    if not rows:
        return None
    about = changes.about([f for f in lines if f.text("bench") in KINDS[:2]])
    state, why = changes.state_of(rows)
    refused = [r for r in rows if r["verdict"].startswith("refused")]
    if refused:
        state, why = "fail", f"{len(refused)} of {len(rows)} measurements refused, first {refused[0]['what']}: {refused[0]['verdict']}"
    return {"kind": "change", "name": "two builds in alternation", "state": state, "why": why, "verdict": changes.counted(rows), "rows": rows,
            "alone": [], "gone": [], "about": {"new": about}, "alternating": True}
