"""Comparison of two sets of taps, tap by tap: dump-schema.md section 7, verification.md 12 and 14."""

import numpy as np

from dump import LAYER_TAPS, OTHER_TAPS, source_dtype, split_path

FIELDS = ("rel_l2_max", "row_median_max", "row_max", "max_abs", "changed_fraction_max")
MARGINS = ("attn/topk_margin", "attn/pool_margin", "ffn/expert_margin", "logit_margin")
ORDER = [*LAYER_TAPS, *OTHER_TAPS]


def family(path):
    """Name under which a tap is reported: layers and stages pooled, draft stages apart."""
    prefix, name = split_path(path)
    return ("dspark/" if prefix.startswith("dspark") else "") + name


def layer_of(path):
    """Backbone layer of a tap, None elsewhere."""
    prefix, _ = split_path(path)
    return int(prefix[7:9]) if prefix.startswith("layers") else None


def execution_order(name):
    """Draft stages come after the backbone; within a layer the order of the tap table."""
    bare = name.removeprefix("dspark/")
    return (name not in LAYER_TAPS, ORDER.index(name if name in ORDER else bare))


def row_errors(a, b):
    """Differences of one tap by row: (norm of the difference, norm of the reference), inf aware."""
    both_inf = np.isneginf(a) & np.isneginf(b)
    a, b = np.where(both_inf, 0, a).astype(np.float64), np.where(both_inf, 0, b).astype(np.float64)
    return (np.linalg.norm(v.reshape(len(a), -1), axis=1) for v in (a - b, a))


def value_stats(a, b):
    """Fields of the noise floor for one tap; a is the reference."""
    error, size = row_errors(a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.where(error == 0, 0, error / size)
        total = np.linalg.norm(error)
        whole = total / np.linalg.norm(size) if total else 0.0
        difference = np.abs(np.where(a == b, 0, a.astype(np.float64) - b))
    return {"rel_l2_max": whole, "row_median_max": float(np.median(rows)), "row_max": float(rows.max()),
            "max_abs": float(difference.max()), "changed_fraction_max": float(np.mean(a != b)),
            "changed": int(np.sum(a != b)), "elements": int(a.size)}


def visible_pool(cfg, labels, pool):
    """Only entries that the row sees count: a kept block may reach past them (section 3)."""
    seen = (labels + 1) // cfg.ratios[cfg.pool_layer]
    return np.where(np.arange(pool.shape[1]) < seen[:, None], pool, 0)


def changed_rows(path, a, b, cfg, labels):
    """Rows whose discrete choice differs. Lists are ascending, so sets compare as arrays."""
    if path.endswith("attn/pool"):
        a, b = visible_pool(cfg, labels, a), visible_pool(cfg, labels, b)
    if a.ndim > 1 and a.shape[1] != b.shape[1]:  # top-k padding depends on the file's length
        width = max(a.shape[1], b.shape[1])
        a, b = (np.pad(v, ((0, 0), (0, width - v.shape[1])), constant_values=-1) for v in (a, b))
    return int(np.sum((a != b).reshape(len(a), -1).any(axis=1)))


def join(golden, path, own_rows, positions):
    """(golden rows, own rows, labels): joined by label where the two hold different rows."""
    a, b = golden.raw(path), np.asarray(own_rows)
    labels = golden.labels(path)
    if len(a) == len(b):
        return a, b, labels
    own = positions if len(b) == len(positions) else np.arange(len(b))
    return a[np.isin(labels, own)], b[np.isin(own, labels)], labels[np.isin(labels, own)]


class Report:
    """Worst figures by tap family, flips by kind, and what exceeded a limit."""

    def __init__(self):
        self.taps, self.flips, self.rows = {}, {}, {}
        self.layers = {}  # name -> {layer: (relative L2, worst row)}

    def add_values(self, name, stats, layer=None):
        if layer is not None:
            self.layers.setdefault(name, {})[layer] = stats["rel_l2_max"], stats["row_max"]
        worst = self.taps.setdefault(name, dict.fromkeys((*FIELDS, "changed", "elements", "compared"), 0))
        for field in FIELDS:
            worst[field] = max(worst[field], stats[field])
        for field in ("changed", "elements"):
            worst[field] += stats[field]
        worst["compared"] += 1

    def add_choice(self, name, flips, rows):
        self.flips[name] = self.flips.get(name, 0) + flips
        self.rows[name] = self.rows.get(name, 0) + rows

    def over(self, limits):
        """Lines for every tap above its limit and every changed choice."""
        lines = [f"{name}: {n} of {self.rows[name]} rows differ" for name, n in self.flips.items() if n]
        for name, worst in self.taps.items():
            limit = limits.get(name.removeprefix("dspark/"), limits.get(name))
            if limit is None:
                continue
            for field, key in (("rel_l2_max", "limit_rel_l2"), ("row_median_max", "limit_row_median")):
                if not worst[field] <= limit[key]:
                    lines.append(f"{name}: {field} {worst[field]:.3g} above {limit[key]:.3g}")
        return lines

    def table(self):
        lines = [f"{'tap':24}{'n':>4}{'rel L2':>11}{'row median':>12}{'row max':>11}{'max abs':>11}"
                 f"{'changed':>18}"]
        for name in sorted(self.taps, key=execution_order):
            t = self.taps[name]
            changed = f"{t['changed']} / {t['elements']}"
            lines.append(f"{name:24}{t['compared']:4}{t['rel_l2_max']:11.3g}{t['row_median_max']:12.3g}"
                         f"{t['row_max']:11.3g}{t['max_abs']:11.3g}{changed:>18}")
        for name in sorted(self.flips, key=execution_order):
            lines.append(f"{name:24}     {self.flips[name]} of {self.rows[name]} rows flipped")
        return "\n".join(lines)

    def compared(self):
        return sum(t["compared"] for t in self.taps.values()) + len(self.flips)


def add_tap(report, path, a, b, labels, cfg):
    """One tap of the reference (a) and of the other side (b), by its kind."""
    if not len(a):
        return
    if source_dtype(path) in ("int", "bool"):
        report.add_choice(family(path), changed_rows(path, a, b, cfg, labels), len(a))
    elif a.size:
        report.add_values(family(path), value_stats(a, b), layer_of(path))


def compared_path(path):
    return not path.endswith("_positions") and family(path).removeprefix("dspark/") not in MARGINS


def compare(golden, taps, cfg, positions):
    """Every tap that dump and run both hold; `logits` joins `logits_oneshot` where the file has that."""
    report = Report()
    for path in golden.paths():
        own = "logits" if path == "logits_oneshot" else path
        if own not in taps or not compared_path(own) or path == "logits" and "logits_oneshot" in golden:
            continue
        a, b, labels = join(golden, path, taps[own], positions)
        add_tap(report, own, a, b, labels, cfg)
    return report


def compare_taps(first, second, cfg):
    """Two runs of the same prompt."""
    report = Report()
    for path, value in first.items():
        if compared_path(path):
            add_tap(report, path, np.asarray(value), np.asarray(second[path]), np.arange(len(value)), cfg)
    return report
