"""The page: template, style, script and data in one file. Nothing in it asks the network (its policy forbids
it), and only the script whose digest the policy names may run."""

import base64
import functools
import hashlib
import json
import math
import os

import jinja2
import markupsafe

from results import Refused, plain

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("plot.js", "colour.js", "heat.js", "charts.js", "curves.js", "table.js", "page.js")
MOST_BYTES = 15_000_000


def figure(v, digits=3):
    """Three significant digits: 0.0213, 40, 3.1e-5; a dash for what is missing."""
    if v is None or (isinstance(v, float) and math.isnan(v)):
        return "–"
    if isinstance(v, float) and math.isinf(v):
        return "∞" if v > 0 else "−∞"
    if v == 0:
        return "0"
    if 1e-3 <= abs(v) < 1e5:
        text = f"{v:.{max(0, digits - 1 - math.floor(math.log10(abs(v))))}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")
    mantissa, exponent = f"{v:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def count(v):
    return f"{v:,}".replace(",", "\u202f") if v is not None else "–"  # a narrow space, as ISO 31 has it


def exact(v):
    """A whole number with all its digits, another with four, but none of those before the point lost."""
    if v is None or not math.isfinite(v) or (v != int(v) and abs(v) < 1000):
        return figure(v, 4)
    return count(round(v))


def size(v):
    if v is None or not math.isfinite(v):
        return "–"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(v) >= scale:
            return f"{figure(v / scale)}\u202f{unit}"
    return f"{int(v)}\u202fB"


def key(v):
    """What a table sorts by: missing values are empty and come last."""
    if v is None or (isinstance(v, float) and math.isnan(v)):
        return ""
    return "1e999" if v == math.inf else "-1e999" if v == -math.inf else repr(v)


def clean(v):
    """JSON has no NaN and no infinity: missing, and the ends of the range."""
    if isinstance(v, float) and not math.isfinite(v):
        return None if math.isnan(v) else math.copysign(1e308, v)
    if isinstance(v, dict):
        return {k: clean(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [clean(x) for x in v]
    return v


def embed(data):
    """JSON that ends no script element and starts no comment in one."""
    text = json.dumps(clean(data), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def digest(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def plots_of(model):
    comparisons = [{"heat": c["heat"], "growth": c["growth"],
                    "flips": [[x["tap"], x["lane"], x["label"], x["margin"], x["class"]] for x in c["flips"]]}
                   for c in model["comparisons"]]
    return {"curves": model["plots"].all, "comparisons": comparisons, "dumps": model["dumps"]["taps"] if model["dumps"] else []}


@functools.cache
def environment():
    env = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True,
                             undefined=jinja2.StrictUndefined)
    env.filters.update(figure=figure, exact=exact, count=count, size=size, key=key)
    return env


def render(model):
    style = load("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(load(name) for name in SCRIPTS) + "})();\n"
    policy = (f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
              "img-src data: blob:; base-uri 'none'; form-action 'none'")
    trusted = {"style": style, "script": script, "data": embed(plots_of(model))}
    trusted = {name: markupsafe.Markup(value) for name, value in trusted.items()}
    text = plain(environment().get_template("page.html").render(model=model, policy=policy, **trusted))  # names of files may not be UTF-8
    n = len(text.encode("utf-8"))
    if n > MOST_BYTES:
        raise Refused(f"the page would have {n} bytes, allowed are {MOST_BYTES}: give fewer results at once")
    return text
