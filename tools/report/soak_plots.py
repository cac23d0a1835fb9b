"""The plots of a run of `dsf soak`: memory against length beside its plan, what stays free, speed by depth, memory over
time, and what a cycle leaves behind."""

import math

import curves
from curves import point
from page import count, exact, figure, size

FOLLOWED = (("anon_bytes", "anonymous memory of the process"), ("live_bytes", "the engine's own allocations"),
            ("pinned_bytes", "pinned host memory"), ("device_used_bytes", "device memory, as the driver has it"))


def style(i):
    return f"s{i % 6}"


def chunks_of(rungs):
    return list(dict.fromkeys(r["chunk"] for r in rungs))


def left_out(fit, rung, budget):
    """Bytes that the fit is without: of the rung, else of the plan; NaN where neither tells them."""
    if not fit["without"]:
        return 0
    planned = next((b["bytes"] for b in budget if b["name"] == fit["without"]), None)
    return next((v for v in (rung["without"], planned) if v is not None), math.nan)


def fitted(fit, rung, budget):
    """a + bL + cTL + dT, of T rows at once, and what the fit is without; a term that the rungs do not tell (null) adds
    nothing."""
    length = rung["length"]
    rows = min(rung["chunk"] or 0, length)
    terms = ((fit["b"], length), (fit["c"], rows * length), (fit["d"], rows))
    return fit["a"] + sum(factor * x for factor, x in terms if factor == factor) + left_out(fit, rung, budget)


def fit_words(fit):
    named = ((fit["b"], "bytes a token"), (fit["c"], "bytes a token and row of a chunk"), (fit["d"], "bytes a row of a chunk"))
    told = ", ".join(f"{figure(v, 4)} {words}" for v, words in named if v == v)
    added = f" and the plan's {fit['without']}" if fit["without"] else ""
    return f"The fitted line, {exact(fit['a'])} bytes, {told}{added}, leaves a residual of {figure(fit['residual_percent'])} %."


def against_length(rungs, chunk, run):
    """Planned, measured and high water of one chunk's rungs, and the fitted line."""
    fit, budget = run["fit"], run["start"]["budget"]

    def line(name, value, mark, look):
        return curves.series(name, [point(r["length"], value(r), f"{name}, {curves.at(r['length'])}\n{size(value(r))}") for r in rungs], mark, look)
    lines = [line("planned", lambda r: r["planned"], "limit", "ceiling"), line("measured", lambda r: r["measured"], "line", "s0"),
             line("high water inside", lambda r: r["high"], "points", "s1")]
    words = "The measured memory has to stay at or below the plan."
    beside = [r["beside"] for r in rungs if r["beside"] is not None]
    if beside:
        words += f" The high water holds also what lies beside the plan before the first token, up to {size(max(beside))}."
    if fit:
        lines.append(line("fitted", lambda r: fitted(fit, r, budget), "limit", "fitted"))
        words += " " + fit_words(fit)
    y = curves.of_bytes([r[key] for r in rungs for key in ("planned", "measured", "high")], steep=True)
    title = f"Memory against length, chunk {count(chunk)}"
    return curves.plot("soak-length", title, words, curves.tokens("tokens of the prompt"), y, lines)


def margin(rungs, limits):
    """What stays free, of all chunks, with the least that was asked for."""
    def words_of(r, chunk):
        return f"chunk {count(chunk)}, {curves.at(r['length'])}\n{size(r['margin'])} free ({figure(r['margin_percent'])} %)"
    lines = [curves.series(f"margin, chunk {count(chunk)}", [point(r["length"], r["margin"], words_of(r, chunk)) for r in rungs if r["chunk"] == chunk],
                           "line", style(i)) for i, chunk in enumerate(chunks_of(rungs))]
    asked, words = limits["margin_bytes"], "What stays free at the peak of each rung"
    if asked is not None:
        lines.append(curves.series("asked for", [point(r["length"], asked, f"asked for: {size(asked)}") for r in rungs], "limit", "ceiling"))
        words += f"; asked for are {size(asked)}"
        words += f" and {figure(limits['margin_percent'])} %" if limits["margin_percent"] is not None else ""
    y = curves.of_bytes([r["margin"] for r in rungs])
    return curves.plot("soak-margin", "Margin against length", words + ".", curves.tokens("tokens of the prompt"), y, lines)


def interval(c, chunk):
    rate = c["tokens"] / c["seconds"] if c["seconds"] > 0 else None
    told = curves.per_second(rate) if rate else "no time"
    return point(c["depth"], rate, f"chunk {count(chunk)}, {curves.at(c['depth'])} before\n{told} over {curves.at(c['tokens'])}")


def by_depth(rungs):
    """Tokens a second of the interval that begins there, of each chunk's longest prompt."""
    lines = []
    for i, chunk in enumerate(chunks_of(rungs)):
        longest = max((r for r in rungs if r["chunk"] == chunk and r["curve"]), key=lambda r: r["length"], default=None)
        if longest:
            name = f"chunk {count(chunk)}, prompt of {count(longest['length'])}"
            lines.append(curves.series(name, [interval(c, chunk) for c in longest["curve"]], "line", style(i)))
    words = "Each point is the interval newly added after so many tokens, not the mean since the start."
    return curves.plot("soak-depth", "Prefill by depth", words, curves.axis("tokens before", "tokens"), curves.axis("tok/s"), lines)


def place(s):
    if s["stage"] == "cycles" and s["cycle"] is not None:
        return f", cycle {s['cycle']}"
    return f", {count(s['length'])} tokens" if s["length"] is not None else ""


def over_time(samples):
    kept, step = curves.thin([s for s in samples if s["seconds"] == s["seconds"]], lambda s: s["anon_bytes"])
    lines = []
    for i, (key, words) in enumerate(FOLLOWED):
        points = [point(s["seconds"], s[key], f"{words}\n{size(s[key])}, {s['stage']} {s['phase']}{place(s)}, {figure(s['seconds'])} s") for s in kept]
        lines.append(curves.series(words, points, "line", style(i)))
    words = "Every sample." if step == 1 else f"Of every {step} samples the one with the most anonymous memory."
    y = curves.of_bytes([s[key] for s in kept for key, _ in FOLLOWED])
    return curves.plot("soak-time", "Memory over time", words, curves.axis("seconds"), y, lines)


def over_cycles(samples, slopes):
    """What each cycle leaves behind: its last sample, less the first cycle's; with the limit of a slope."""
    last = {s["cycle"]: s for s in samples if s["stage"] == "cycles" and s["cycle"] is not None}
    lines = []
    for i, (key, words) in enumerate(FOLLOWED):
        left = [(cycle, s[key]) for cycle, s in sorted(last.items()) if s[key] is not None]
        if len(left) > 1:
            first, was = left[0]
            lines.append(curves.series(words, [point(cycle, v - was, f"{words}\ncycle {cycle}: {exact(v - was)} bytes since cycle {first}")
                                               for cycle, v in left], "line", style(i)))
    limit = next((s["limit"] for s in slopes if s["what"] in dict(FOLLOWED) and s["limit"] > 0), None)
    if lines and limit:
        first, end = min(last), max(last)
        lines.append(curves.series("the limit of a slope", [point(c, limit * (c - first), f"{size(limit)} a cycle") for c in (first, end)], "limit", "ceiling"))
    y = curves.of_bytes([p[1] for x in lines for p in x["points"]], "change")
    told = "; ".join(f"{s['what']} {figure(s['per_cycle'])} a cycle ({figure(s['low'])} to {figure(s['high'])})" for s in slopes)
    words = "The last sample of each cycle, less that of the first." + (f" Slopes with their intervals: {told}." if told else "")
    return curves.plot("soak-cycles", "What a cycle leaves behind", words, curves.axis("cycle", zero=False), y, lines)


def build(run):
    """The plots of a run, None where it has nothing for one."""
    rungs = run["rungs"]
    return [*(against_length([r for r in rungs if r["chunk"] == chunk], chunk, run) for chunk in chunks_of(rungs)),
            margin(rungs, run["start"]["limits"]), by_depth(rungs), over_time(run["samples"]), over_cycles(run["samples"], run["slopes"])]
