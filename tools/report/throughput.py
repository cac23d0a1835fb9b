"""Throughput of `dsf bench` lines against context and against batch, with the lines of the limits: the ceiling that was
measured in the same run, and the datasheet's."""

import math

import cards
import curves
from curves import point
from page import count, figure
from samples import measured, scaled, time_of


def inverse(m, factor):
    """factor / m, with its interval the other way round."""
    return {"median": factor / m["median"] if m["median"] else math.nan, "low": factor / m["high"] if m["high"] else math.nan,
            "high": factor / m["low"] if m["low"] else math.nan}


def host(f):
    """A model on processors: its own tokens a second."""
    time, told = time_of(f), measured(f, "tokens_per_s")
    rate = inverse(time, 1e3)
    if told["median"] == told["median"]:  # with the spread that the time has
        rate = scaled(rate, told["median"] / rate["median"]) if rate["median"] == rate["median"] else told
    decode = f.text("bench") == "decode"
    return {"what": f"{f.text('bench')} {f.text('model')}".strip(), "batch": f.whole("batch", 1), "rate": rate,
            "context": f.whole("context") + (0 if decode else f.whole("tokens")), "words": "tokens before" if decode else "tokens at its end",
            "ceiling": cards.percent(f, "percent_of_ceiling", "percent"), "physical": cards.percent(f, "percent_of_physical"),
            "method": "" if decode else "Each point is the tokens added up to there, not the mean since the start." if f.whole("context") else ""}


def device_decode(f):
    """The whole model by kinds of layers, from the layers that were measured."""
    if f.whole("whole_model_missing_layers") > 0 or not f.has("whole_model_us"):
        return None
    batch, time = f.whole("batch", 1), measured(f, "graph_us")
    whole = scaled(time, f.number("whole_model_us") / time["median"]) if time["median"] else time
    return {"what": f"decode, layers {cards.layers(f)}", "batch": batch, "rate": inverse(whole, 1e6 * batch), "context": f.whole("context"),
            "ceiling": f.number("percent_at_copy_rate"), "physical": f.number("percent_of_physical"), "words": "tokens before",
            "method": "The layers measured, brought to the whole model by kind of layer; the limits are those layers' share, carried "
                      "the same way."}


def device_prefill(f):
    """One chunk at a depth, brought to the first half of the layers."""
    if f.whole("encoder_missing_layers") > 0 or not f.has("encoder_us_a_token"):
        return None
    time = measured(f, "device_us")
    whole = scaled(time, f.number("encoder_us_a_token") / time["median"]) if time["median"] else time
    return {"what": f"prefill, {count(f.whole('chunk'))} rows, layers {cards.layers(f)}", "batch": 1, "rate": inverse(whole, 1e6),
            "context": f.whole("context"), "ceiling": cards.percent(f, "percent_of_ceiling", "percent"),
            "physical": f.number("percent_of_speed_of_light"), "words": "tokens before", "method": "One chunk at that depth; the layers measured, brought to the first half by kind of layer."}


READERS = {"decode": host, "prefill": host, "decode_device": device_decode, "prefill_device": device_prefill}


def read(f):
    reader = READERS.get(f.text("bench"))
    p = reader(f) if reader and not f.has("refused") else None
    if not p or math.isnan(p["rate"]["median"]):
        return None
    mode = f.text("mode") or f.text("prefill")
    return {**p, "of": (p["what"], f.text("machine"), f.whole("threads"), f.text("commit"), f.whole("chunk"), mode)}


def limit_of(p, key):
    return p["rate"]["median"] * 100 / p[key] if p[key] == p[key] and p[key] > 0 else None


def lines_of(points, x, name, style):
    """The measured rate of points and its two limits."""
    at = [(p, p[x]) for p in sorted(points, key=lambda p: p[x])]
    words = {"context": lambda p: curves.at(p["context"], p["words"]), "batch": lambda p: f"batch {p['batch']}"}[x]
    def measured_words(p):
        rate = p["rate"]
        return f"{name}, {words(p)}\n{curves.per_second(rate['median'])}, {figure(rate['low'])} – {figure(rate['high'])}"
    found = [curves.series(name, [point(v, p["rate"]["median"], measured_words(p), p["rate"]["low"], p["rate"]["high"]) for p, v in at], "line", style)]
    for key, label in (("ceiling", "measured ceiling"), ("physical", "physical limit")):
        told = [point(v, limit_of(p, key), f"{label}, {words(p)}\n{curves.per_second(limit_of(p, key))}; measured: {figure(p[key])} % of it")
                for p, v in at if limit_of(p, key) is not None]
        found.append(curves.series(label, told, "limit", key))
    return found


def drawn(points, x, other):
    """One plot of a group: against x, for each value of the other."""
    first, rest = points[0], {}
    for p in points:
        rest.setdefault(p[other], []).append(p)
    made = []
    for value, some in sorted(rest.items()):
        some = list({p[x]: p for p in some}.values())  # the same measured twice: the last
        if len(some) < 2:
            continue
        at = f", {curves.at(value, first['words'])}" if other == "context" else f", batch {value}" if value != 1 else ""
        low = min(p["rate"]["median"] for p in some)
        high = max(v for p in some for v in (p["rate"]["median"], limit_of(p, "ceiling") or 0, limit_of(p, "physical") or 0))
        scale = "log" if low > 0 and high > 20 * low else "linear"
        title = f"{first['what']}{at}: throughput against {x}"
        caption = f"{first['of'][1]}, commit {first['of'][3] or 'not told'}. {first['method']}".strip()
        y = curves.axis("thousand tok/s" if high >= 1e5 else "tok/s", scale=scale, div=1e3 if high >= 1e5 else 1)
        axis = curves.tokens(first["words"]) if x == "context" else curves.axis("sequences in a step", "tokens", "log", zero=False)
        made.append(curves.plot("throughput-" + x, title, caption, axis, y, lines_of(some, x, "measured", "s0")))
    return made


def plots(lines):
    groups = {}
    for f in lines:
        p = read(f)
        if p:
            groups.setdefault(p["of"], []).append(p)
    found = []
    for points in groups.values():
        found += drawn(points, "context", "batch") + drawn(points, "batch", "context")
    return found
