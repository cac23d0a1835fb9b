"""Published figures beside ours: kind by kind, for each GPU and of what its datasheet allows. Ours come from the lines of
`dsf bench` on one GPU that stand beside the table on the command line; where none fits, the row says not measured."""

import math
import os

import cards
from results import Refused, name_of

METHODS = {
    "prefill-average":
        "ours: microseconds a token at the measured depths, joined by straight lines (level before the first), averaged over the prompt, where "
        "it is as long as the chunk at least; each of them is the layers measured, brought to the first half of the model by kind of layer. One GPU.",
    "prefill-at-depth":
        "ours: one chunk that ends at that depth, read from the straight line between the measured depths; the layers measured, brought to the "
        "first half of the model by kind of layer. One GPU.",
    "decode-single":
        "ours: the step of the layers measured, brought to the whole model by kind of layer; no drafts, so only beside rows without. One GPU, "
        "which could not hold the whole model; the latency of one stream does not divide by GPUs, so a GPU to a GPU flatters whoever has few.",
}
METHODS["decode-aggregate"] = METHODS["decode-single"]
NOT_COMPARED = ("cached-total", "prefill-unstated")


def limits_of(f):
    """What the model costs, as bench/limits.c has it (a unit test holds the two together)."""
    flops, step = f.object("prompt_flops"), f.object("step_bytes")
    if not flops or not step:
        raise Refused(f'{f.where}: no "prompt_flops" or no "step_bytes"')
    return {**{key: flops.number(key) for key in ("experts", "dense", "attention", "index_per_token")},
            **{"bytes_" + key: step.number(key) for key in ("expert", "dense", "head", "layers", "experts", "active")}}


def prefill_limit(cost, gpu, context, average):
    """Tokens a second of one GPU at its datasheet's arithmetic, over a prompt of context or at that depth."""
    keys = context if average else 2 * context  # index scores grow with the depth: the mean is half of the last
    fp8 = gpu["fp8"] if gpu["fp8"] == gpu["fp8"] else gpu["bf16"]
    return 1 / ((cost["experts"] + cost["dense"] + cost["index_per_token"] * keys) / fp8 + cost["attention"] / gpu["bf16"])


def decode_limit(cost, gpu, gpus, streams):
    """Tokens a second of all streams at the datasheet's memory rate, without index reads, native weights, uniform routing."""
    experts = cost["bytes_experts"]
    distinct = experts * (1 - (1 - cost["bytes_active"] / experts) ** streams)
    read = cost["bytes_layers"] * distinct * cost["bytes_expert"] + cost["bytes_dense"] + cost["bytes_head"]
    return streams * gpus * gpu["bytes_per_s"] / read


def read_figure(f, kinds, gpus):
    row = {key: f.text(key) for key in ("system", "hardware", "gpu", "kind", "weights", "mode", "basis", "date", "source", "note")}
    row.update(gpus=f.whole("gpus", None), context=f.whole("context", None), rate=f.number("tok_s"), to=f.number("tok_s_to"),
               streams=f.whole("streams", 1), drafting=f.whole("drafting", None))
    if row["kind"] not in kinds:
        raise Refused(f"{f.where}.kind: {name_of(row['kind'])}, known are {', '.join(kinds)}")
    if not row["rate"] > 0 or not row["source"] or not row["system"]:
        raise Refused(f"{f.where}: a figure has a system, a source and tok_s above 0")
    row["hw"] = gpus.get(row["gpu"])
    return row


def share(row, cost):
    """Percent of the datasheet, NaN where it cannot be said: other weights, drafts, an unknown GPU or context."""
    gpu, context = row["hw"], row["context"]
    if not gpu or not row["gpus"]:
        return math.nan
    if row["kind"] in ("prefill-average", "prefill-at-depth", "prefill-aggregate") and context:
        return 100 * row["rate"] / (row["gpus"] * prefill_limit(cost, gpu, context, row["kind"] != "prefill-at-depth"))
    if row["kind"].startswith("decode") and row["drafting"] == 0 and row["weights"] == "native":
        return 100 * row["rate"] / decode_limit(cost, gpu, row["gpus"], row["streams"])
    return math.nan


# --- ours ---

def prefill_lines(lines):
    """{chunk: (commit, [(depth, microseconds a token)])} of the last commit and layers of each chunk."""
    found = {}
    for f in lines:
        whole = f.whole("encoder_missing_layers") == 0 and f.has("encoder_us_a_token")
        if f.text("bench") != "prefill_device" or f.has("refused") or not whole:
            continue
        key = (f.text("commit"), f.text("layer_list"), f.text("machine"))
        kept = found.get(f.whole("chunk"))
        if not kept or kept["key"] != key:
            kept = found[f.whole("chunk")] = {"key": key, "points": {}}
        kept["points"][f.whole("context")] = f.number("encoder_us_a_token")
        kept["words"] = f"layers {cards.layers(f)}, commit {f.text('commit')}; {f.text('method') or 'method not told'}"
    return found


def at_depth(points, depth):
    """Microseconds a token at a depth, or NaN beyond the measured ones."""
    depths = sorted(points)
    if depth <= depths[0]:
        return points[depths[0]]
    for a, b in zip(depths, depths[1:]):
        if a <= depth <= b:
            return points[a] + (points[b] - points[a]) * (depth - a) / (b - a)
    return math.nan


def mean_to(points, chunk, context):
    """The mean over a prompt of a chunk or more: the line is straight between its knees, so the trapezium is exact. The
    last chunk stands for its own tokens."""
    end = max(points) + chunk
    if not chunk <= context <= end:
        return math.nan
    stretched = {**points, end: points[max(points)]}
    knees = [0, *[d for d in sorted(stretched) if 0 < d < context], context]
    values = [at_depth(stretched, d) for d in knees]
    area = sum((b - a) * (va + vb) / 2 for a, b, va, vb in zip(knees, knees[1:], values, values[1:]))
    return area / context if context else math.nan


def our_prefill(row, found, cost):
    best = None
    for chunk, kept in found.items():
        points, context = kept["points"], row["context"]
        average = row["kind"] == "prefill-average"
        us = mean_to(points, chunk, context) if average else at_depth({**points, max(points) + chunk: points[max(points)]}, context)
        if us == us and (best is None or us < best["us"]):
            best = {"us": us, "rate": 1e6 / us, "words": f"chunk {chunk}, depths {min(points)} to {max(points)}, {kept['words']}",
                    "machine": kept["key"][2], "percent": math.nan, "average": average}
    return best


def our_decode(row, lines):
    fit = [f for f in lines if f.text("bench") == "decode_device" and not f.has("refused") and f.whole("batch") == row["streams"] and
           f.whole("whole_model_missing_layers") == 0 and f.number("whole_model_us") > 0]
    if not fit or row["drafting"] != 0:
        return None
    f = min(reversed(fit), key=lambda f: abs(f.whole("context") - (row["context"] or 0)))
    words = f"{f.whole('context')} tokens before, layers {cards.layers(f)}, commit {f.text('commit')}; {f.text('method') or 'method not told'}"
    return {"rate": 1e6 * row["streams"] / f.number("whole_model_us"), "machine": f.text("machine"), "words": words,
            "percent": f.number("percent_of_physical")}


def beside(row, lines, found, cost, gpus):
    ours = None
    if row["kind"] in ("prefill-average", "prefill-at-depth") and row["context"]:
        ours = our_prefill(row, found, cost)
    elif row["kind"].startswith("decode"):
        ours = our_decode(row, lines)
    if not ours:
        return None
    gpu = next((gpus[name] for name in sorted(gpus, key=len, reverse=True) if name in ours["machine"]), None)
    if gpu and row["kind"].startswith("prefill"):
        ours["percent"] = 100 * ours["rate"] / prefill_limit(cost, gpu, row["context"], ours["average"])
    ours["ratio"] = ours["rate"] / (row["rate"] / row["gpus"]) if row["gpus"] else math.nan
    return ours


def build(documents, lines):
    """[{words, kinds: [{words, method, rows}]}] of the published tables; lines: Fields of dsf bench."""
    made = []
    for f, path in documents:
        cost = limits_of(f)
        gpus = {g.text("gpu"): {"source": g.text("source"), **{key: g.number(key) for key in ("fp8", "bf16", "bytes_per_s")}} for g in f.objects("gpus")}
        kinds = {k.text("kind"): k.text("words") for k in f.objects("kinds")}
        rows, found = [read_figure(x, kinds, gpus) for x in f.objects("figures")], prefill_lines(lines)
        for row in rows:
            row["each"] = row["rate"] / row["gpus"] if row["gpus"] else math.nan
            row["percent"], row["ours"] = share(row, cost), beside(row, lines, found, cost, gpus)
            row["why"] = "not compared" if row["kind"] in NOT_COMPARED else "not measured"
        groups = [{"kind": kind, "words": words, "method": METHODS.get(kind, ""), "rows": [r for r in rows if r["kind"] == kind]}
                  for kind, words in kinds.items()]
        for g in groups:
            g["ours"] = list(dict.fromkeys(f"{r['ours']['machine']}, {r['ours']['words']}" for r in g["rows"] if r["ours"]))
        made.append({"name": os.path.basename(path), "words": f.text("words"), "model": f.text("model"), "gpus": gpus,
                     "groups": [g for g in groups if g["rows"]]})
    return made
