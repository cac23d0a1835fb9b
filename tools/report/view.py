"""What the page shows, from results: one verdict over all of them, checks, comparisons, measurements. The
verdict is counted again here; what a result says of itself must agree with its own checks."""

import os

import bench
import changes
import compare
import curves
import paired
import published
import soak

MOST_CELLS = 1_200_000  # of all heat maps: 6.4 MB of page
WORDS = {
    "pass": "passed",
    "fail": "failed",
    "none": "not passed: nothing was compared",
    "open": "not judged",
}


def read_check(f):
    at = f.object("at")
    return {
        "suite": f.text("suite"), "check": f.text("check"), "verdict": f.text("verdict", "unknown"),
        "compared": f.whole("compared"), "seconds": f.number("seconds"), "figure": f.text("figure"),
        "value": f.number("value"), "limit": f.number("limit"), "derivation": f.text("derivation"),
        "words": f.text("words"),
        "at": at and {"path": at.text("path"), "row": at.whole("row", None), "column": at.whole("column", None),
                      "reference": at.number("reference"), "ours": at.number("ours")},
    }


def check_name(c):
    return c["check"] if c["check"].startswith(c["suite"]) else f"{c['suite']} {c['check']}"


def verify_state(f, checks):
    passed = [c for c in checks if c["verdict"] == "pass"]
    empty = [c for c in passed if c["compared"] <= 0]
    bad = [c for c in checks if c["verdict"] not in ("pass", "skip")]
    for c in empty:
        c["verdict"] = "nothing compared"
    if bad:
        return "fail", f"{len(bad)} of {len(checks)} checks did not pass, first {check_name(bad[0])}"
    if not passed or len(empty) == len(passed):
        return "none", "no check compared anything"
    if empty:
        return "none", f"{len(empty)} of {len(checks)} checks compared nothing, first {check_name(empty[0])}"
    if f.flag("pass") is not True:
        return "fail", "every check passed, yet the result does not call itself passed"
    return "pass", ""


def read_verify(f, path):
    checks = [read_check(c) for c in f.objects("checks")]
    state, why = verify_state(f, checks)
    skipped = sum(c["verdict"] == "skip" for c in checks)
    return {
        "kind": "verify", "name": os.path.basename(path), "state": state, "why": why, "checks": checks,
        "model": f.text("model"), "reference": f.text("golden"), "ours": "", "verdict": "", "mode": "", "digest": f.text("digest"),
        "backend": f.text("backend"), "variants": f.text("variants"), "floor": f.text("floor"),
        "first": f.text("first_divergence"), "skipped": skipped,
        "values": sum(max(0, c["compared"]) for c in checks),
    }


def comparison_name(what, inner, path):
    name = os.path.basename(inner.text("reference") or path)
    return f"{name}, {what}" if what else name


def build(read, title, earlier=None):
    """read: [(source, [(kind, Fields)])] of the results; earlier: (paths of old lines, the stream of judgements)."""
    parts = [(kind, f, source["path"]) for source, found in read for kind, f in found]
    compared = [(kind, path, part) for kind, f, path in parts if kind in ("diff", "graft") for part in compare.parts(kind, f)]
    model = {"title": title, "sources": [source for source, _ in read], "verifies": [], "comparisons": [],
             "dumps": None, "plots": curves.Plots()}
    measured = [f for kind, f, _ in parts if kind == "bench" and not paired.is_pair(f)]
    model["bench"] = bench.build(measured, model["plots"])
    model["soaks"] = soak.build([(f, path) for kind, f, path in parts if kind == "soak"], model["plots"])
    model["published"] = published.build([(f, path) for kind, f, path in parts if kind == "published"],
                                         measured)
    model["changes"] = [c for c in [paired.build([f for kind, f, _ in parts if kind == "bench" and paired.is_pair(f)])] if c]
    if earlier:
        now = [[f for kind, f in found if kind == "bench" and not paired.is_pair(f)] for _, found in read]
        made, sources = changes.build(earlier[0], now, earlier[1])
        model["changes"].append(made)
        model["sources"] += sources
    for kind, f, path in parts:
        if kind == "verify":
            model["verifies"].append(read_verify(f, path))
    for kind, path, (what, inner, judge) in compared:
        name = comparison_name(what, inner, path)
        model["comparisons"].append(compare.build(kind, inner, judge, name, MOST_CELLS // len(compared)))
    # The same pair twice has the same name: tell them apart by number.
    for i, c in enumerate(model["comparisons"]):
        if any(c["name"] == other["name"] for other in model["comparisons"][:i]):
            c["name"] += f" ({i + 1})"
    model["judged"] = model["verifies"] + model["comparisons"] + model["soaks"] + model["changes"]
    say_once(model["judged"])
    model["verdict"] = verdict(model)
    model["title"] = title or next((os.path.basename(j["model"].rstrip("/")) for j in model["judged"] if j.get("model")), "") or "results"
    return model


def say_once(judged):
    """A sentence that several results share is shown with the first of them."""
    said = set()
    for j in judged:
        words = j.get("verdict", "")
        j["sentence"] = "" if words in said else words
        said.add(words)


def verdict(model):
    """A failure anywhere fails; then one that compared nothing; a pass needs something judged and passed."""
    states = [j["state"] for j in model["judged"]]
    if model["bench"]["over"]:
        states.append("fail")
    state = next((s for s in ("fail", "none", "pass", "open") if s in states), "open")
    words = WORDS[state]
    if not states:
        words = "not judged: no verdict among the results"
    return {"state": state, "words": words}


def tap_hints(model):
    """Taps worth a histogram when none is asked for, and the floors by tap: the first divergence, the first that
    are over their limits, and the worst."""
    hints = []
    for c in model["comparisons"]:
        over = [t for t in c["taps"] if t["ratio"] > 1 and not t["discrete"]]
        worst = sorted(over, key=lambda t: -t["ratio"])
        hints += [c["first"]["path"]] if c["first"] else []
        hints += [t["path"] for t in over[:8] + worst[:8]]
    floors = {t["path"]: t["floor"] for c in model["comparisons"] for t in c["taps"]}
    return list(dict.fromkeys(hints)), floors


def add_dumps(model, found):
    model["dumps"] = found
    model["sources"] += found["sources"]
