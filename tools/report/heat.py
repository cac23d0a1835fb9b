"""The heat map's numbers: for each kind of tap a matrix layers x tokens of row ratios (row over its limit),
binned by the maximum so that nothing bad is averaged away."""

import base64
import math
import struct

MOST_ROWS, MOST_COLUMNS = 128, 512
# The first axis of these is an entry of the compressed cache, not a token (dump-schema.md 2 and 3).
ENTRY_KINDS = {"attn/latent", "attn/kv_main", "attn/index_k"}


def lane_of(path):
    """The heat map's row of a tap: its layer, its stage of the draft head, or the part of the model it is in."""
    parts = path.split("/")
    if parts[0] == "layers" and len(parts) > 1:
        return parts[1]
    return f"draft {parts[2]}" if parts[:2] == ["dspark", "stages"] and len(parts) > 2 else parts[0]


class Axis:
    """Labels that occur, ascending, in equal bins of at most MOST_COLUMNS."""

    def __init__(self, labels, most):
        self.labels = sorted(labels)
        self.per = max(1, math.ceil(len(self.labels) / most))
        self.bin = {label: i // self.per for i, label in enumerate(self.labels)}
        self.size = math.ceil(len(self.labels) / self.per)

    def export(self):
        first = self.labels[:: self.per]
        last = [self.labels[min(i + self.per, len(self.labels)) - 1] for i in range(0, len(self.labels), self.per)]
        return {"first": first, "last": last, "per": self.per, "labels": len(self.labels)}


def worse(a, b):
    return b if math.isnan(a) or b > a else a


def encode(cells):
    return base64.b64encode(struct.pack(f"<{len(cells)}f", *(single(v) for v in cells))).decode("ascii")


def single(v):
    """What a float holds: beyond its range stands infinity."""
    return math.copysign(math.inf, v) if abs(v) > 3e38 else v


def build(taps, most_cells):
    """taps: of compare.py. None when no tap tells its rows."""
    told = [t for t in taps if t["row_label"] or t["flips"]]
    if not told:
        return None
    lanes = list(dict.fromkeys(t["lane"] for t in told))
    lanes_per = max(1, math.ceil(len(lanes) / MOST_ROWS))
    lane_at = {lane: i // lanes_per for i, lane in enumerate(lanes)}
    kinds = list(dict.fromkeys(t["kind"] for t in told))
    n_lanes = math.ceil(len(lanes) / lanes_per)
    most = max(16, min(MOST_COLUMNS, most_cells // (n_lanes * len(kinds))))
    labels = {"token": set(), "entry": set()}
    for t in told:
        labels[axis_of(t)].update(t["row_label"], (f["label"] for f in t["flips"]))
    axes = {name: Axis(found, most) for name, found in labels.items()}
    layers = []
    for kind in kinds:
        mine = [t for t in told if t["kind"] == kind]
        axis = axes[axis_of(mine[0])]
        reported = [t for t in mine if t["verdict"] == "reported"]
        layers.append({"kind": kind, "axis": axis_of(mine[0]), "reported": sorted({lane_at[t["lane"]] for t in reported}),
                       **cells_of(mine, axis, lane_at, n_lanes)})
    return {"lanes": [lanes[i:i + lanes_per] for i in range(0, len(lanes), lanes_per)], "lanes_per": lanes_per,
            "axes": {name: axis.export() for name, axis in axes.items()}, "kinds": layers}


def axis_of(tap):
    return "entry" if tap["kind"] in ENTRY_KINDS else "token"


def cells_of(taps, axis, lane_at, n_lanes):
    cells, flips, paths = [math.nan] * (n_lanes * axis.size), {}, {}
    for t in taps:
        base = lane_at[t["lane"]] * axis.size
        paths[lane_at[t["lane"]]] = t["path"]
        for label, ratio in zip(t["row_label"], t["row_ratio"]):
            at = base + axis.bin[label]
            # A row whose ratio is no number (NaN here, a number there) is as bad as can be.
            cells[at] = worse(cells[at], math.inf if math.isnan(ratio) else ratio)
        # What failed for more than its rows' sizes (a NaN, a gain) fails at the row that the result names.
        if t["verdict"] == "FAILED" and t["at_row"] in axis.bin and not math.isnan(t["ratio"]):
            at = base + axis.bin[t["at_row"]]
            cells[at] = worse(cells[at], t["ratio"])
        for flip in t["flips"]:
            at = (lane_at[t["lane"]], axis.bin[flip["label"]])
            flips[at] = flips.get(at, False) or flip["class"] == "wrong"
    return {"cells": encode(cells), "paths": [paths.get(i) for i in range(n_lanes)],
            "flips": [[lane, column, int(wrong)] for (lane, column), wrong in sorted(flips.items())]}
