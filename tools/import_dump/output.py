"""Writes the HDF5 file: same input, same bytes; under a temporary name until it is whole."""

import json
import os

import h5py
import numpy as np

from . import Refused

CHUNK = 1 << 20


def ascii_json(text):
    """JSON text as ASCII; outside ASCII it has strings only, where \\u escapes say the same."""
    return "".join(c if c < "\x80" else json.dumps(c)[1:-1] for c in text)


def attribute(target, name, value):
    target.attrs[name] = np.bytes_(value.encode("ascii", "replace")) if isinstance(value, str) else np.int32(value)


def dataset(file, path, array, attributes):
    options = {}
    if array.nbytes >= 4096:
        row = max(1, array.nbytes // max(1, array.shape[0]))
        rows = min(array.shape[0], max(1, CHUNK // row))
        options = {"chunks": (rows, *array.shape[1:]), "compression": "gzip", "compression_opts": 4, "shuffle": True}
    data = file.create_dataset(path, data=array, track_times=False, **options)
    for name, value in attributes.items():
        attribute(data, name, value)


def write_axes(file, importer, model):
    n = importer.n
    axes = {"token_ids": importer.token_ids, "positions": np.arange(n, dtype="<i4")}
    for ratio in sorted({r for r in model.ratios if r}):
        axes[f"entries_r{ratio}"] = np.arange(n // ratio, dtype="<i4")
    if importer.rows_path == "/rows_sub":
        axes["rows_sub"] = importer.positions
    axes["dspark/draft_positions"] = n + np.arange(model.sizes["B"], dtype="<i4")
    for path, array in axes.items():
        dataset(file, path, array, {})


def write(path, root, importer, model):
    """All taps of an importer. Returns their number."""
    part, done = path + ".part", False
    paths = sorted(p for p in importer.m.parts if model.tap(p))
    try:
        with h5py.File(part, "w", libver="earliest") as file:
            for name, value in root.items():
                attribute(file, name, value)
            write_axes(file, importer, model)
            for tap in paths:
                array, dtype, rows = importer.tap(tap)
                dataset(file, tap, array, {"rows": rows, "source_dtype": dtype})
            for name, array in importer.inputs.items():
                dataset(file, name, array, {})
        os.replace(part, path)
        done = True
    except OSError as error:
        raise Refused(3, f"{path}: {error}") from None
    finally:
        if not done and os.path.exists(part):
            os.remove(part)
    return len(paths)
