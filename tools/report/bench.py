"""Lines of `dsf bench` as tables: medians with their intervals, the share of the machine's limit, the kernels of a step
and whether they add up to it."""

import math

import cards
import throughput
from page import figure
from results import plain
from samples import interval, measured, scaled, time_of

SUM_WITHIN = 5  # percent that the kernels of a step may miss it by


def cv_of(f, key=""):
    """Percent by which the repeats vary, and what the line itself calls weak about them."""
    inner = f.object(key) if key and isinstance(f.value.get(key), dict) else f
    noisy, unsettled = (any(x.flag(word) is value for x in (f, inner)) for word, value in (("noisy", True), ("settled", False)))
    words = ["noisy"] * noisy + ["not settled when it began"] * unsettled
    return {"cv": inner.number("cv_percent"), "weak": " and ".join(words)}


def sum_of(parts, whole):
    """What the kernels of a step add up to, in percent of it."""
    told = sum(v for v in parts if v == v)
    percent = 100 * told / whole if parts and whole > 0 else math.nan
    good = abs(percent - 100) <= SUM_WITHIN
    words = "The line does not tell the step that its kernels belong to."
    if percent == percent:
        words = f"The kernels add up to {figure(percent, 4)} % of the step: " + (f"within {SUM_WITHIN} %." if good else f"NOT within {SUM_WITHIN} % of it.")
    return {"percent": percent, "good": good, "words": words}


def op_row(f):
    return {"what": f"{f.text('op')} {f.text('use')}".strip(), "variant": f.text("variant"), "shape": f.text("shape"),
            "ms": time_of(f), "percent": measured(f, "percent"), "limit": f.text("limit"),
            "physical": cards.percent(f, "percent_of_physical"), "times_ref": measured(f, "ref_ratio"), "rate": math.nan, **cv_of(f)}


def step_row(s):
    return {"op": s.text("op"), "variant": s.text("variant"), "share": s.number("percent_of_step"),
            "us": s.number("ns_per_token") / 1e3, "percent": s.number("percent_of_limit")}


def by_share(rows):
    return sorted(rows, key=lambda s: -s["share"] if s["share"] == s["share"] else 0)


def run_row(f):
    steps = by_share(step_row(s) for s in f.objects("step"))
    at = [f"{f.whole('tokens')} tokens"] if f.text("bench") == "prefill" or not f.has("context") else []
    at += [f"{f.whole('context')} tokens before"] if f.has("context") else []
    batch = f", batch {f.whole('batch')}" if f.has("batch") else ""
    whole = f.first_number("step_ns", "mean_ns", "median_ns") / 1e3
    return {"what": f"{f.text('bench')} {f.text('model')}{batch}", "variant": f.text("prefill"), "shape": ", ".join(at), "ms": time_of(f),
            "percent": measured(f, "percent"), "physical": cards.percent(f, "percent_of_physical"), "limit": f.text("limit"),
            "times_ref": measured(f, "ref_ratio"), "rate": measured(f, "tokens_per_s")["median"], "steps": steps, **cv_of(f),
            "sum": sum_of([s["us"] for s in steps], whole) if steps else None}


def device_op_row(f):
    """An operation on a GPU; its percent is of the rates measured in the run."""
    what = f"{f.text('op')} {f.text('use')}".strip()
    return {"what": what, "variant": f.text("variant"), "shape": f.text("shape"), "ms": scaled(measured(f, "us"), 1e-3),
            "percent": interval(cards.percent(f, "percent_of_ceiling", "percent_of_copy_rate"), math.nan), "limit": f.text("limit"),
            "physical": f.number("percent_of_physical"), "times_ref": measured(f, "ref_ratio"), "rate": math.nan, **cv_of(f, "us")}


def device_run_row(f):
    """Some layers on a GPU: a decode step, or a chunk of a prompt."""
    decode = f.text("bench") == "decode_device"
    rows = f"batch {f.whole('batch')}" if decode else f"{f.whole('chunk')} rows"
    steps = by_share({"op": s.text("op"), "variant": s.text("variant"), "share": s.number("percent"), "us": s.number("us"),
                      "percent": math.nan} for s in f.objects("operations"))
    key = "graph_us" if decode else "device_us"
    time = measured(f, key)
    return {"what": f"{'decode' if decode else 'prefill'}, {rows}, layers {cards.layers(f)}", "variant": "",
            "shape": f"{f.whole('context')} tokens before", "ms": scaled(time, 1e-3),
            "percent": interval(cards.percent(f, "percent_of_ceiling", "percent_at_copy_rate"), math.nan),
            "physical": cards.percent(f, "percent_of_physical", "percent_of_speed_of_light"), "limit": "bytes" if decode else "arithmetic",
            "times_ref": interval(math.nan, math.nan), "rate": math.nan, "steps": steps, **cv_of(f, key),
            "sum": sum_of([s["us"] for s in steps], time["median"]) if steps else None}


def memory_row(f):
    return {"model": f.text("model"), "context": f.whole("context_limit"), "planned": f.number("planned_bytes"),
            "resident": f.number("resident_anonymous_bytes"), "allowed": f.number("allowed_bytes"),
            "percent": f.number("percent_of_plan"), "within": f.flag("within", False)}


def library_row(f):
    """One operation beside a library's at the same shape."""
    return {"what": f"{f.text('op')} {f.text('use')}".strip(), "variant": f.text("variant"), "library": f"torch {f.text('torch')}",
            "shape": " ".join(f"{key}={f.whole(key)}" for key in ("n", "k", "o") if f.has(key)), "theirs": f.number("tflops"),
            "ours": f.number("dsf_tflops"), "ratio": f.number("ratio")}


def ceiling_row(f):
    inner = f.object("ceiling")
    return {name: measured(inner, key) for name, key in
            (("read", "read_gb_s"), ("bf16", "bf16_gflop_s"), ("f32", "f32_gflop_s"))} if inner else None


def other_row(f):
    """A kind that has no table of its own: its plain fields."""
    fields = [(plain(key), plain(str(value)[:120])) for key, value in f.value.items()
              if isinstance(value, (str, int, float)) and key != "bench"]
    fields += [(plain(key), figure(f.object(key).number("median"))) for key, value in f.value.items()
               if isinstance(value, dict) and "median" in value]
    return {"bench": f.text("bench"), "fields": fields[:24]}


def build(lines, plots):
    made = {"op": [], "run": [], "memory": [], "ceiling": [], "library": [], "other": [], "about": [], "over": False}
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
        elif kind == "ceiling_torch":
            made["library"].append(library_row(f))
        elif kind != "ceiling":
            made["other"].append(other_row(f))
        row = ceiling_row(f) if kind == "ceiling" else None
        if row:
            made["ceiling"].append(row)
        made["about"].append((f.text("machine"), f.whole("threads"), f.text("commit"), f.text("conditions")))
    made["about"] = list(dict.fromkeys(made["about"]))
    made["over"] = any(not row["within"] for row in made["memory"])
    made["any"] = bool(lines)
    made["cards"] = cards.build(lines)
    made["plots"] = [plots.add(p) for p in throughput.plots(lines) if p]
    made["unsummed"] = [row for row in made["run"] if row["sum"] and not row["sum"]["good"]]
    made["weak"] = [row for row in made["run"] + made["op"] if row["weak"]]
    return made
