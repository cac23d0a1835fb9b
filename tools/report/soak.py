"""Lines of `dsf soak` as runs: what each line holds, and the verdict, counted again from its checks. soak_plots.py
draws them."""

import math
import os

import cards
import soak_plots
from page import count
from results import Refused, name_of



GAUGES = ("anon_bytes", "live_bytes", "pinned_bytes", "device_used_bytes", "device_free_bytes", "file_bytes", "page_cache_bytes", "fds")
LIMITS = ("margin_bytes", "margin_percent", "residual_percent", "slope_bytes")


def maybe(f, key):
    """A number, or None where the machine has none."""
    v = f.number(key)
    return None if math.isnan(v) else v


def read_start(f):
    limits = f.object("limits")
    return {
        "model": f.text("model"), "context": f.whole("context", None), "chunks": f.wholes("chunks"), "ladder": f.wholes("ladder"),
        "cycles": f.whole("cycles", None), "prefill": f.text("prefill"), "backend": f.text("backend"),
        "planned": maybe(f, "planned_bytes"), "commit": f.text("commit"), "machine": f.text("machine"),
        "threads": f.whole("threads", None), "conditions": f.text("conditions"), "layers": cards.layers(f), "planted": f.text("planted"),
        "budget": [{"name": b.text("name"), "kind": b.text("kind"), "bytes": maybe(b, "bytes"), "formula": b.text("formula"),
                    "phase": b.text("phase")} for b in f.objects("budget")],
        "limits": {key: maybe(limits, key) if limits else None for key in LIMITS},
    }


def read_sample(f):
    s = {key: maybe(f, key) for key in GAUGES}
    s.update(seconds=f.number("t_ms") / 1e3, stage=f.text("stage"),
             phase=f.text("phase"), length=f.whole("length", None), chunk=f.whole("chunk", None), cycle=f.whole("cycle", None))
    return s


def read_rung(f):
    length = f.whole("length", None)
    if length is None or length < 0:
        raise Refused(f"{f.where}.length: {name_of(f.value.get('length'))}, a rung has a length of 0 or more tokens")
    curve = [{"depth": c.whole("depth"), "tokens": c.whole("tokens"), "seconds": c.number("seconds")} for c in f.objects("curve")]
    arenas = [{"name": a.text("name"), "planned": maybe(a, "planned"), "high": maybe(a, "high_water")} for a in f.objects("arenas")]
    return {
        "length": length, "chunk": f.whole("chunk", None), "planned": maybe(f, "planned_bytes"), "measured": maybe(f, "measured_bytes"),
        "high": maybe(f, "high_water_bytes"), "margin": maybe(f, "margin_bytes"), "margin_percent": maybe(f, "margin_percent"),
        "seconds": maybe(f, "seconds"), "rate": maybe(f, "tokens_per_s"), "curve": curve, "arenas": arenas, "hash": f.text("hash"),
        "same": f.flag("same"),
        "beside": maybe(f, "beside_plan_bytes"), "without": maybe(f, "without_bytes"),
        "largest": [{"name": x.text("name"), "bytes": maybe(x, "bytes"), "formula": x.text("formula"), "product": x.flag("chunk_times_length")}
                    for x in f.objects("largest")],
    }


def read_slope(f):
    return {"what": f.text("what"), "cycles": f.whole("cycles", None), "per_cycle": f.number("per_cycle"), "low": f.number("low"),
            "high": f.number("high"), "limit": f.number("limit"), "passed": f.flag("passed")}


def read_check(f):
    return {"name": f.text("name"), "passed": f.flag("passed"), "measured": f.number("measured"), "limit": f.number("limit"),
            "words": f.text("words")}


def gather(lines):
    """Runs of lines, each from its start on."""
    runs = []
    for f, path in lines:
        kind = f.text("soak")
        if kind == "start":
            runs.append({"path": path, "start": read_start(f), "samples": [], "rungs": [], "fit": None, "slopes": [], "verdict_line": None})
            continue
        if not runs or runs[-1]["path"] != path:
            raise Refused(f'{f.where}: a line "{kind}" before any line "start" of its file')
        run = runs[-1]
        if run["verdict_line"]:
            raise Refused(f'{f.where}: a line "{kind}" after the verdict')
        if kind == "sample":
            run["samples"].append(read_sample(f))
        elif kind == "rung":
            run["rungs"].append(read_rung(f))
        elif kind == "fit":
            run["fit"] = {key: f.number(key) for key in ("a", "b", "c", "d", "residual_percent")} | {"points": f.whole("points", None), "without": f.text("without")}
        elif kind == "slope":
            run["slopes"].append(read_slope(f))
        else:
            run["verdict_line"] = {"passed": f.flag("passed"), "stopped": f.text("stopped"), "culprit": f.text("culprit"),
                                   "checks": [read_check(c) for c in f.objects("checks")]}
    return runs


def state_of(run):
    """pass, fail or none, and why: from the checks themselves, which the lines before must not contradict."""
    verdict = run["verdict_line"]
    if not verdict:
        return "none", "the run has no verdict: it ended before"
    checks = verdict["checks"]
    if not checks:
        return "none", "the verdict holds no check"
    failed = [c for c in checks if c["passed"] is not True]
    if failed:
        culprit = f"; culprit: {verdict['culprit']}" if verdict["culprit"] else ""
        return "fail", f"{len(failed)} of {len(checks)} checks failed, first {failed[0]['name']}{culprit}"
    changed = next((r for r in run["rungs"] if r["same"] is False), None)
    if changed:
        return "fail", f"every check passed, yet the outputs at {count(changed['length'])} tokens are not the same"
    grown = next((s for s in run["slopes"] if s["passed"] is False), None)
    if grown:
        return "fail", f"every check passed, yet the slope of {grown['what']} did not"
    if verdict["stopped"]:
        return "fail", f"stopped before its end: {verdict['stopped']}"
    if verdict["passed"] is not True:
        return "fail", "every check passed, yet the run does not call itself passed"
    return "pass", ""


def is_over(arena):
    return arena["planned"] is not None and arena["high"] is not None and arena["high"] > arena["planned"]


def build(lines, plots):
    """lines: [(Fields, path)] in order; plots: curves.Plots of the page."""
    made = []
    for run in gather(lines):
        rungs, start = run["rungs"], run["start"]
        state, why = state_of(run)
        made.append({
            "kind": "soak", "name": os.path.basename(run["path"]), "state": state, "why": why, "model": start["model"], "mode": start["prefill"],
            "backend": start["backend"], **run, "plots": [plots.add(p) for p in soak_plots.build(run) if p],
            "longest": max(rungs, key=lambda r: (r["planned"] or 0, r["length"]), default=None),
            "over": [(r, a) for r in rungs for a in r["arenas"] if is_over(a)],
        })
    return made
