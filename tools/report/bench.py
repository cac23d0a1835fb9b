"""Lines of `dsf bench` as tables: medians with their intervals, the share of the machine's limit."""

import math

from results import plain


def measured(f, key):
    """A figure with its spread (half the distance between the quartiles over the median): (median, low, high)."""
    value = f.value.get(key)
    if isinstance(value, dict):
        inner = f.object(key)
        median, spread = inner.number("median"), inner.number("spread")
    else:
        median, spread = f.number(key), math.nan
    return interval(median, spread)


def interval(median, spread):
    if math.isnan(spread):
        return {"median": median, "low": median, "high": median}
    return {"median": median, "low": median * max(0.0, 1 - spread), "high": median * (1 + spread)}


def scaled(m, factor):
    return {key: value * factor for key, value in m.items()}


def time_of(f):
    return scaled(interval(f.number("median_ns"), f.number("spread")), 1e-6)


def op_row(f):
    return {"what": f"{f.text('op')} {f.text('use')}".strip(), "variant": f.text("variant"), "shape": f.text("shape"),
            "ms": time_of(f), "percent": measured(f, "percent"), "limit": f.text("limit"),
            "times_ref": measured(f, "ref_ratio"), "rate": math.nan, "rounds": f.whole("rounds"), "steps": []}


def step_row(s):
    return {"op": s.text("op"), "variant": s.text("variant"), "share": s.number("percent_of_step"),
            "us": s.number("ns_per_token") / 1e3, "percent": s.number("percent_of_limit")}


def run_row(f):
    steps = sorted((step_row(s) for s in f.objects("step")), key=lambda s: -s["share"] if s["share"] == s["share"] else 0)
    at = f"{f.whole('context')} tokens before" if f.has("context") else f"{f.whole('tokens')} tokens"
    return {"what": f"{f.text('bench')} {f.text('model')}", "variant": f.text("prefill"), "shape": at, "ms": time_of(f),
            "percent": measured(f, "percent"), "limit": f.text("limit"), "times_ref": measured(f, "ref_ratio"),
            "rate": f.number("tokens_per_s"), "rounds": f.whole("runs", f.whole("tokens")), "steps": steps}


def device_op_row(f):
    """An operation on a GPU; its percent is of the datasheet."""
    what = f"{f.text('op')} {f.text('use')}".strip()
    return {"what": what, "variant": f.text("variant"), "shape": f.text("shape"), "ms": scaled(measured(f, "us"), 1e-3),
            "percent": measured(f, "percent_of_physical"), "limit": f.text("limit"), "times_ref": interval(math.nan, math.nan),
            "rate": math.nan, "rounds": f.object("us").whole("n") if f.has("us") else 0, "steps": []}


def device_run_row(f):
    """Some layers on a GPU: a decode step, or a chunk of a prompt."""
    decode = f.text("bench") == "decode_device"
    rows = f"batch {f.whole('batch')}" if decode else f"{f.whole('chunk')} rows"
    steps = sorted(({"op": s.text("op"), "variant": s.text("variant"), "share": s.number("percent"), "us": s.number("us"),
                     "percent": math.nan} for s in f.objects("operations")),
                   key=lambda s: -s["share"] if s["share"] == s["share"] else 0)
    time = "graph_us" if decode else "device_us"
    share = "percent_of_physical" if decode else "percent_of_speed_of_light"
    return {"what": f"{'decode' if decode else 'prefill'}, {rows}, layers {f.text('layer_list')}", "variant": "",
            "shape": f"{f.whole('context')} tokens before", "ms": scaled(measured(f, time), 1e-3),
            "percent": measured(f, share), "limit": "bytes" if decode else "arithmetic",
            "times_ref": interval(math.nan, math.nan), "rate": math.nan,
            "rounds": f.object(time).whole("n") if f.has(time) else 0, "steps": steps}


def memory_row(f):
    return {"model": f.text("model"), "context": f.whole("context_limit"), "planned": f.number("planned_bytes"),
            "resident": f.number("resident_anonymous_bytes"), "allowed": f.number("allowed_bytes"),
            "percent": f.number("percent_of_plan"), "within": f.flag("within", False)}


def ceiling_row(f):
    inner = f.object("ceiling")
    return {name: measured(inner, key) for name, key in
            (("read", "read_gb_s"), ("bf16", "bf16_gflop_s"), ("f32", "f32_gflop_s"))} if inner else None


def other_row(f):
    """A kind that has no table of its own: its plain fields."""
    fields = [(plain(key), plain(str(value)[:120])) for key, value in f.value.items()
              if isinstance(value, (str, int, float)) and key != "bench"]
    return {"bench": f.text("bench"), "fields": fields[:16]}


def build(lines):
    made = {"op": [], "run": [], "memory": [], "ceiling": [], "other": [], "about": [], "over": False}
    for f in lines:
        kind = f.text("bench")
        if kind == "op":
            made["op"].append(op_row(f))
        elif kind in ("decode", "prefill"):
            made["run"].append(run_row(f))
        elif kind == "op_device" and not f.has("refused"):
            made["op"].append(device_op_row(f))
        elif kind in ("decode_device", "prefill_device") and not f.has("refused"):
            made["run"].append(device_run_row(f))
        elif kind == "memory":
            made["memory"].append(memory_row(f))
        elif kind != "ceiling":
            made["other"].append(other_row(f))
        row = ceiling_row(f) if kind == "ceiling" else None
        if row:
            made["ceiling"].append(row)
        made["about"].append((f.text("machine"), f.whole("threads"), f.text("commit"), f.text("conditions")))
    made["about"] = list(dict.fromkeys(made["about"]))
    made["over"] = any(not row["within"] for row in made["memory"])
    made["any"] = bool(lines)
    return made
