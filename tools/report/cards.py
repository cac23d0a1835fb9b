"""The report card of a measurement: what must be known of it before its figure is believed. What a line does not
tell is said to be not told."""

import math

NOT_TOLD = "not told"


def text(f, *keys):
    return next((f.text(key) for key in keys if f.has(key) and isinstance(f.value[key], str) and f.text(key)), NOT_TOLD)


def whole(f, *keys):
    return next((f.whole(key) for key in keys if f.has(key)), None)


def layers(f):
    """0-3, 8, 14: the layers that were measured, runs of them shortened."""
    try:
        numbers = [int(word) for word in f.text("layer_list").split(",")]
    except ValueError:
        return f.text("layer_list")
    runs = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a + 1 else f"{a}, {b}" if b > a else f"{a}" for a, b in runs)


def clocks(*places):
    """Of a GPU its SM's and memory's, else the processor's: of the first place that tells any."""
    for f in filter(None, places):
        if f.has("sm_mhz"):
            memory = f" / {f.number('memory_mhz'):.0f}" if f.has("memory_mhz") else ""
            return f"{f.number('sm_mhz'):.0f}{memory} MHz"
        if f.has("processor_mhz") or f.has("clock_mhz"):
            return f"{f.first_number('processor_mhz', 'clock_mhz'):.0f} MHz"
    return NOT_TOLD


def inner(f, key):
    """The object at key, or None where that is something else."""
    return f.object(key) if isinstance(f.value.get(key), dict) else None


def weights(f):
    words = text(f, "weights", "model")
    if f.text("op") and words == NOT_TOLD:
        words = "random operands"
    return f"{words}, seed {f.whole('seed')}" if f.has("seed") else words


def graphs(f):
    if f.has("graphs"):
        value = f.value["graphs"]
        return ("yes" if value else "no") if isinstance(value, bool) else f.text("graphs")
    if f.has("graph_us"):
        return "yes"
    return "timed as graphs" if f.has("nodes_a_launch") else NOT_TOLD


def percent(f, *keys):
    """The first of keys that is told, a number or an object with a median."""
    for key in keys:
        if f.has(key):
            return f.object(key).number("median") if isinstance(f.value[key], dict) else f.number(key)
    return math.nan


def name_of(f):
    what = " ".join(x for x in (f.text("op"), f.text("use")) if x)
    return f"{f.text('bench')} {what}".strip()


def outputs(f):
    """What ties the figure to a checked run."""
    checked, against = text(f, "output_hash", "logits_hash", "ids_hash", "hash", "checked"), inner(f, "checked")
    if checked == NOT_TOLD and against:
        return f"against {against.text('against') or 'another run'}, {against.whole('rows')} rows"
    return "against the reference" if checked == NOT_TOLD and (f.has("checked_worst") or f.has("against_ref")) else checked


def read(f):
    device = inner(f, "device")
    ceiling = percent(f, "percent_of_ceiling", "percent_at_copy_rate", "percent_of_copy_rate", "percent")
    return {
        "what": name_of(f), "at": f.text("shape"), "commit": text(f, "commit"), "machine": text(f, "machine"),
        "driver": text(f, "driver") if f.has("driver") or not device else text(device, "driver"),
        "clocks": clocks(inner(f, "clocks"), device, f), "load": f.number("load"),
        "weights": weights(f), "layers": layers(f),
        "routing": text(f, "routing"), "acceptance": f.number("acceptance"), "chunk": whole(f, "chunk", "rows"), "batch": whole(f, "batch"),
        "context": whole(f, "context", "tokens"), "mode": text(f, "mode", "prefill"), "graphs": graphs(f),
        "of_ceiling": ceiling, "of_physical": percent(f, "percent_of_physical", "percent_of_speed_of_light"), "outputs": outputs(f),
        "refused": f.text("refused"),
    }


def build(lines):
    return [read(f) for f in lines if f.text("bench") not in ("ceiling", "ceiling_torch")]
