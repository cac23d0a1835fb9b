"""Earlier lines of `dsf bench` against these: what became faster or slower. The judge is the one of `dsf bench
--baseline` (bench/baseline.c), which cmd_report.c has asked; here its words meet the figures."""

import json
import math
import os

import cards
import samples
from results import Refused, read

ORDER = {"slower": 0, "faster": 1, "the control moved: the machine, not the code": 2, "no difference": 3, "not told": 4}

UNTOLD = {"change": math.nan, "low": math.nan, "high": math.nan, "verdict": ""}  # of a kernel timed inside one run


def judgements(stream):
    """{(file, line): judgement} of what the command handed on."""
    found = {}
    for text in stream:
        if text.strip():
            j = json.loads(text)
            found[j["file"], j["line"]] = j
    return found


def label(f):
    at = [f.text("shape")]
    at += [f"{key} {f.whole(key)}" for key in ("context", "tokens", "batch", "chunk") if f.has(key)]
    at += [f"{f.whole('rows')} rows"] if f.has("rows") and not f.text("shape") else []
    return {"what": f"{cards.name_of(f)} {f.text('model')}".strip(), "at": ", ".join(x for x in at if x), "variant": f.text("variant")}


def time_of(f):
    """Milliseconds with their interval, from where such a line has them."""
    key = next((key for key in ("us", "graph_us", "device_us") if f.has(key)), None)
    return samples.scaled(samples.measured(f, key), 1e-3) if key else samples.time_of(f)


def kernels_of(f):
    """{kernel: microseconds} of a step."""
    found = {s.text("op"): s.number("ns_per_token") / 1e3 for s in f.objects("step")}
    return found | {s.text("op"): s.number("us") for s in f.objects("operations")}


def kernels(old, new):
    """What each kernel added to the step, the largest change first."""
    a, b = kernels_of(old), kernels_of(new)
    rows = [{"op": op, "old": a.get(op, math.nan), "new": b.get(op, math.nan), **UNTOLD} for op in dict.fromkeys((*a, *b))]
    whole = sum(v for v in a.values() if v == v)
    for row in rows:
        row["delta"] = (0 if row["new"] != row["new"] else row["new"]) - (0 if row["old"] != row["old"] else row["old"])
        row["share"] = 100 * row["delta"] / whole if whole > 0 else math.nan
    return sorted(rows, key=lambda r: -abs(r["delta"]))


def number(value):
    return math.nan if value is None else value


def pair(old, new, j):
    change, noise = number(j["change"]), number(j["noise"])
    by_limit = all(cards.percent(f, "percent") == cards.percent(f, "percent") for f in (old, new))
    return {**label(new), "old": time_of(old), "new": time_of(new), "change": change, "noise": noise, "low": change - noise, "high": change + noise,
            "control": number(j["control"]), "verdict": j["verdict"], "by_limit": by_limit, "kernels": kernels(old, new)}


def importance(row):
    """Slower first, by what lies beyond the noise; then faster; then the rest by its change over the noise."""
    beyond = abs(row["change"]) - row["noise"]
    return ORDER.get(row["verdict"], 4), -(beyond if beyond == beyond else 0)


def lines_of(path):
    source, parts = read(path)
    for kind, f in parts:
        if kind != "bench":
            raise Refused(f"{f.where}: a {kind} result; --compare takes lines of dsf bench")
    return source, [f for _, f in parts]


def about(lines):
    return list(dict.fromkeys((f.text("machine"), f.whole("threads"), f.text("commit"), f.text("conditions")) for f in lines))


def state_of(rows):
    """pass, fail or none of rows in order of importance, and why."""
    slower = [r for r in rows if r["verdict"] == "slower"]
    if not rows:
        return "none", "no measurement has its equal among the old ones"
    if all(r["verdict"] == "not told" for r in rows):
        return "none", "no pair tells both times"
    if slower:
        kernel = next((k["op"] for k in slower[0]["kernels"] if k["verdict"] == "slower"), "")
        named = f"{slower[0]['what']} {slower[0]['at']}".rstrip() + (f", in it {kernel}" if kernel else "")
        return "fail", f"{len(slower)} of {len(rows)} measurements slower, most {named}"
    return "pass", ""


def counted(rows):
    """Verdicts and how many there are of each."""
    counts = {words: sum(r["verdict"] == words for r in rows) for words in ORDER}
    return ", ".join(f"{n} {words}" for words, n in counts.items() if n)


def build(paths, new, stream):
    """new: [[Fields of dsf bench] of each result]; stream: the judgements. Returns the section and the sources."""
    old = [lines_of(path) for path in paths]
    by_line = [{f.line: f for f in lines} for _, lines in old]
    judged, rows, used, alone = judgements(stream), [], set(), []
    for i, lines in enumerate(new):
        for f in lines:
            j = judged.get((i, f.line))
            before = by_line[j["old_file"]].get(j["old_line"]) if j else None
            if before is None:
                alone.append(label(f))
                continue
            used.add((j["old_file"], j["old_line"]))
            rows.append(pair(before, f, j))
    rows.sort(key=importance)
    gone = [label(f) for i, (_, lines) in enumerate(old) for f in lines if (i, f.line) not in used]
    state, why = state_of(rows)
    sentence = "; ".join(x for x in (counted(rows), f"{len(alone)} only in the new, {len(gone)} only in the old") if x)
    sides = {"old": about([f for _, lines in old for f in lines]), "new": about([f for lines in new for f in lines])}
    name = f"{', '.join(os.path.basename(p) for p in paths)}, then and now"
    made = {"kind": "change", "name": name, "state": state, "why": why, "verdict": sentence, "rows": rows, "alone": alone, "gone": gone, "about": sides,
            "alternating": False}
    return made, [source for source, _ in old]
