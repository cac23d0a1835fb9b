"""A pair of dumps (dump-schema.md): for chosen taps the histogram of the error and the quantiles of both sides.
Rows are joined by their labels; big taps are thinned by whole rows, and the page tells by how much."""

import math
import os
import re

from results import Refused

MOST_TAPS, MOST_VALUES, BINS, SPAN = 64, 1 << 22, 81, 8.0
LEVELS = 101


def libraries():
    try:
        import h5py
        import numpy
    except ImportError as e:
        raise Refused(f"--reference and --ours need Python's {e.name}: apt install python3-h5py") from None
    return h5py, numpy


def open_dump(h5py, path):
    if not os.path.exists(path):
        raise Refused(f"{path}: no such file")
    try:
        f = h5py.File(path, "r")
    except OSError:
        raise Refused(f"{path}: no HDF5 file, or a damaged one") from None
    schema = f.attrs.get("schema", "")
    schema = schema.decode("ascii", "replace") if isinstance(schema, bytes) else str(schema)
    if schema != "dsv41-dump-1":
        f.close()
        raise Refused(f'{path}: schema "{schema[:40]}", allowed is "dsv41-dump-1"')
    return f


def floats(h5py, f):
    """Paths of the taps that hold values."""
    found = []
    f.visititems(lambda name, o: found.append(name) if isinstance(o, h5py.Dataset) and o.dtype.kind == "f"
                 and o.ndim >= 1 and not name.endswith("_margin") else None)
    return found


def pattern(glob):
    """The globs of dsf diff, graft and dump: * and ? keep to their segment, ** does not; [ is no class."""
    parts = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(parts.get(p) or re.escape(p) for p in re.findall(r"\*\*|.", glob, re.DOTALL)), re.DOTALL)


def matches(path, globs):
    """As a whole path, or as a kind: without its layer, or its stage (dspark/stages/00/...)."""
    kind = re.sub(r"^(layers|dspark/stages)/\d+/", "", path)
    return any(g.fullmatch(path) or g.fullmatch(kind) for g in globs)


def choose(both, globs, hints):
    if globs:
        wanted = [pattern(g) for g in globs]
        chosen = [p for p in both if matches(p, wanted)]
        if not chosen:
            raise Refused(f"--tap {','.join(globs)}: no tap of values in both dumps has such a name")
    else:
        streams = [p for p in both if p == "embed" or p.startswith(("final/", "logits"))
                   or (p.startswith("layers/") and p.count("/") == 2 and p.endswith("/out"))]
        chosen = [p for p in hints if p in both] + [p for p in streams if p not in hints]
    return chosen[:MOST_TAPS], len(chosen)


def labels_of(f, name):
    rows = f[name].attrs.get("rows", b"")
    rows = rows.decode() if isinstance(rows, bytes) else str(rows)
    if not rows or rows not in f:
        return list(range(f[name].shape[0]))
    labels = [int(v) for v in f[rows][:]]
    if len(labels) != f[name].shape[0]:
        raise Refused(f"{f.filename}: {name} has {f[name].shape[0]} rows, {rows} labels {len(labels)}")
    return labels


def join(numpy, a, b, name):
    """The common rows of both sides as two matrices, and the step that thinned them."""
    left, right = a[name], b[name]
    if left.shape[1:] != right.shape[1:]:
        raise Refused(f"{name}: rows of {left.shape[1:]} in {a.filename}, of {right.shape[1:]} in {b.filename}")
    at = {label: i for i, label in enumerate(labels_of(b, name))}
    pairs = [(i, at[label]) for i, label in enumerate(labels_of(a, name)) if label in at]
    width = max(1, math.prod(left.shape[1:]))
    step = max(1, math.ceil(len(pairs) * width / MOST_VALUES))
    pairs = pairs[::step]
    take = lambda d, rows: numpy.stack([d[i] for i in rows]) if rows else numpy.zeros((0,))  # noqa: E731
    if len(pairs) * width <= MOST_VALUES and step == 1:
        x, y = left[:][[i for i, _ in pairs]], right[:][[j for _, j in pairs]]
    else:
        x, y = take(left, [i for i, _ in pairs]), take(right, [j for _, j in pairs])
    return x.astype("f8").ravel(), y.astype("f8").ravel(), step


def describe(numpy, name, x, y, step, floor):
    good = numpy.isfinite(x) & numpy.isfinite(y)
    lost = int(x.size - good.sum())
    x, y = x[good], y[good]
    tap = {"tap": name, "n": int(x.size), "lost": lost, "step": step, "floor": None}
    if x.size == 0:
        return {**tap, "hist": [], "q": [], "empty": True}
    d, rms = y - x, float(numpy.sqrt(numpy.mean(x * x)))
    error = float(numpy.sqrt(numpy.mean(d * d)))
    sigma = floor * rms if math.isfinite(floor) and floor * rms > 0 else error
    edges = numpy.linspace(-SPAN, SPAN, BINS + 1)
    unit = numpy.clip(d / sigma, -SPAN, SPAN) if sigma > 0 else d
    hist, _ = numpy.histogram(unit, edges)
    # Levels are dense in the tails, where engines differ: 1e-6 .. 0.5 and mirrored.
    low = numpy.logspace(math.log10(max(1e-6, 1 / (2 * x.size))), math.log10(0.5), LEVELS // 2 + 1)
    levels = numpy.concatenate([[0.0], low, 1 - low[-2::-1], [1.0]])
    q = numpy.stack([numpy.quantile(x, levels), numpy.quantile(y, levels)], axis=1)
    tap.update(floor=floor if sigma != error else None, sigma=sigma, rms=rms, error=error, span=SPAN,
               rel=error / rms if rms > 0 else None, exact=bool((d == 0).all()), zero=int((d == 0).sum()),
               hist=[int(v) for v in hist], q=[[float(u), float(v)] for u, v in q], bias=float(d.mean()))
    return tap


def compare(reference, ours, globs, hints):
    if not reference or not ours:
        raise Refused("--reference A.h5 and --ours B.h5 go together")
    h5py, numpy = libraries()
    wanted, floors = hints
    with open_dump(h5py, reference) as a, open_dump(h5py, ours) as b:
        there = set(floats(h5py, b))
        both = [p for p in floats(h5py, a) if p in there]
        chosen, n = choose(both, [g for words in globs for g in words.split(",")], wanted)
        try:
            taps = [describe(numpy, p, *join(numpy, a, b, p), floors.get(p, math.nan)) for p in chosen]
        except (OSError, KeyError, ValueError) as e:
            raise Refused(f"{reference} and {ours}: {e}") from None
    if not taps:
        raise Refused(f"{reference} and {ours}: no tap of values in both")
    sources = [{"path": p, "bytes": os.path.getsize(p), "sha256": "", "kinds": ["dump"]} for p in (reference, ours)]
    return {"reference": reference, "ours": ours, "taps": taps, "n": n, "sources": sources}
