"""A diff or graft result as the page shows it: verdict, first divergence, taps, flips, heat map, growth."""

import math

import heat
from results import Refused

MOST_FLIPS, MOST_TAPS = 1000, 6000
BAD = ("FAILED",)


def read_tap(f):
    path, layer = f.text("path"), f.whole("layer", -1)
    row = f.object("row")
    labels, rel, ratio = (row.wholes("label"), row.numbers("rel_l2"), row.numbers("ratio")) if row else ([], [], [])
    if len(ratio) != len(labels) or (rel and len(rel) != len(labels)):
        raise Refused(f"{f.where}.row: {len(labels)} labels, {len(rel)} rel_l2, {len(ratio)} ratios; allowed are "
                      "as many of each")
    return {
        "path": path, "kind": f.text("kind", path), "layer": layer, "lane": heat.lane_of(path),
        "discrete": f.flag("discrete", f.has("flips") or f.has("flip")), "verdict": f.text("verdict", "unknown"),
        "rows": f.whole("rows"), "changed": f.whole("changed"), "unequal": f.whole("unequal", f.whole("unequal_rows")),
        "rel_l2": f.number("rel_l2"), "row_max": f.number("row_max"), "max_abs": f.number("max_abs"),
        "limit": f.number("limit_row"), "limit_rel_l2": f.number("limit_rel_l2"), "ratio": f.number("ratio"),
        "floor": f.number("floor_rel_l2"), "at_row": f.whole("at_row", None), "at_column": f.whole("at_column", None),
        "reference": f.number("reference"), "ours": f.number("ours"), "has_values": f.has("reference") or f.has("ours"),
        "why": f.text("why"), "row_label": labels, "row_ratio": ratio, "flips": [read_flip(x) for x in f.objects("flip")],
    }


def read_flip(f):
    kind = f.text("class", "wrong")
    if kind not in ("tie", "wrong"):
        raise Refused(f'{f.where}.class: "{kind}", allowed are "tie" and "wrong"')
    return {"label": f.whole("label", -1), "margin": f.number("margin"), "lost": f.wholes("lost"),
            "gained": f.wholes("gained"), "class": kind}


def read_first(f):
    """The first divergence, with what is known of it: [(name, number or words)]."""
    first = f.object("first")
    if first is None:
        return None
    facts = [("its inputs, over their limit", first.number("inputs_ratio")),
             ("local error, over the floor", first.number("local_ratio")), ("pattern", first.text("pattern"))]
    return {"path": first.text("path"), "sentence": first.text("sentence", first.text("path")), "causes": first.texts("causes"),
            "facts": [(name, value) for name, value in facts if value not in ("", None) and value == value]}


def growth(f, taps):
    """Error over layers at the stream: from `budget`, else from the taps `out` and their limits."""
    points = [{"layer": b.whole("layer", -1), "tap": b.text("tap", "out"), "floor": b.number("floor"),
               "budget": b.number("budget"), "measured": b.number("measured")} for b in f.objects("budget")]
    limit = "error budget"
    if not points:
        limit = "limit"
        points = [{"layer": t["layer"], "tap": "out", "floor": t["floor"], "budget": t["limit_rel_l2"],
                   "measured": t["rel_l2"]} for t in taps if t["kind"] == "out" and t["layer"] >= 0]
    return {"points": sorted(points, key=lambda p: p["layer"]), "limit": limit} if len(points) > 1 else None


def state_of(f, good, taps):
    """pass, fail, none (nothing compared), or open (compared, not judged), and the sentence behind it.
    A result that calls itself good and is not is a failure."""
    compared = f.whole("taps_compared", len(taps))
    failed = [t["path"] for t in taps if t["verdict"] in BAD]
    if compared == 0 or not taps:
        return "none", "the result holds no tap that was compared"
    if f.flag("gated", True) is False:
        return "open", "compared, not judged"
    if good and failed:
        return "fail", f"the result calls itself good, yet {failed[0]} failed"
    if not good and not failed and f.flag("provisional"):
        return "open", "no floor was given: the limits are provisional, which is no pass"
    if good is None:
        return "fail", 'the result has no "good"'
    return ("pass", "") if good else ("fail", f"{len(failed)} of {len(taps)} taps outside their limits")


def trim(taps):
    """The taps of the table: all, or the failed and the worst."""
    if len(taps) <= MOST_TAPS:
        return taps
    order = sorted(range(len(taps)), key=lambda i: (taps[i]["verdict"] not in BAD, -ratio_key(taps[i]["ratio"])))
    return [taps[i] for i in sorted(order[:MOST_TAPS])]


def ratio_key(v):
    return math.inf if math.isnan(v) else v


def flips_of(taps):
    """Wrong ones first, then by margin, the largest first; at most MOST_FLIPS of them."""
    flips = [{**flip, "tap": t["path"], "lane": t["lane"]} for t in taps for flip in t["flips"]]
    flips.sort(key=lambda x: (x["class"] != "wrong", -ratio_key(x["margin"])))
    return flips[:MOST_FLIPS], len(flips)


def parts(kind, f):
    """The comparisons in a result: (what it is, its fields, the fields that hold verdict and first divergence).
    A graft holds the comparison of its dump, which it judges itself, and may hold the one of a free run."""
    if kind == "diff":
        return [("", f, f)]
    inner, carried = f.object("diff"), f.object("carried")
    if inner is None:
        raise Refused(f'{f.where}: no "diff": a graft result holds the comparison of its dump')
    found = [("from golden inputs", inner, f if f.has("good") else inner)]
    return found + ([("free run", carried, carried)] if carried else [])


def build(kind, inner, judge, name, most_cells):
    taps = [read_tap(t) for t in inner.objects("taps")]
    for order, t in enumerate(taps):
        t["order"] = order
    state, why = state_of(inner, judge.flag("good"), taps)
    flips, n_flips = flips_of(taps)
    logits = inner.object("logits")
    return {
        "name": name, "kind": kind, "state": state, "why": why,
        "verdict": judge.text("verdict"), "reference": inner.text("reference"),
        "ours": inner.text("ours"), "model": inner.text("model"), "mode": inner.text("mode"),
        "floor": inner.text("floor"), "notes": inner.text("notes"), "tokens": inner.whole("prompt_tokens"),
        "values": inner.whole("values_compared"), "first": read_first(judge), "taps": trim(taps),
        "n_taps": len(taps), "flips": flips, "n_flips": n_flips,
        "n_wrong": sum(x["class"] == "wrong" for t in taps for x in t["flips"]),
        "absent": inner.texts("absent"), "also": judge.texts("also_wrong"), "wiring": judge.text("wiring"),
        "backend": "", "variants": "", "digest": "", "heat": heat.build(taps, most_cells), "growth": growth(inner, taps),
        "logits": logits and {key: logits.number(key) for key in logits.value},
    }
