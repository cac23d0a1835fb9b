"""Reads dumps with h5py alone. FULL STATS: the statistics are those of the rows. --part WHOLE PART: every
row that PART has is WHOLE's, bit for bit."""
import sys

import h5py
import numpy


def taps(file):
    found = {}
    file.visititems(lambda name, object: found.update({name: object}) if "rows" in object.attrs else None)
    return found


def labels(file, tap):
    return file[tap.attrs["rows"].decode()][:]


def check_stats(full, stats):
    rows, records = taps(full), taps(stats)
    assert len(rows) == len(records) > 250, (len(rows), len(records))
    for name, tap in rows.items():
        assert tap.ndim <= 4 and tap.dtype in ("f4", "i4", "i8", "u1"), (name, tap.dtype)
        assert len(labels(full, tap)) == len(tap), name
        record = records["stats/" + name][:]
        block = records["stats/" + name].attrs["row_block"]
        assert len(record) == -(-len(tap) // block), name
        for i, r in enumerate(record):
            x = tap[i * block:(i + 1) * block].astype("f8").ravel()
            good = x[numpy.isfinite(x)]
            assert r["count"] == x.size and r["nan"] == numpy.isnan(x).sum(), (name, i)
            assert r["inf"] == numpy.isinf(x).sum(), (name, i)
            if good.size:
                assert r["min"] == good.min() and r["max"] == good.max(), (name, i)
                assert numpy.isclose(r["mean"], good.mean(), 1e-9, 1e-9 * abs(good).max()), (name, i)
                assert numpy.isclose(r["rms"], numpy.sqrt((good * good).mean()), 1e-9), (name, i)
    print(f"{len(rows)} taps, statistics as NumPy finds them")


def check_part(whole, part):
    all_taps, kept, rows = taps(whole), taps(part), 0
    for name, tap in kept.items():
        other = all_taps[name]
        assert numpy.array_equal(labels(part, tap), labels(whole, other)[:len(tap)]), name
        assert len(labels(part, tap)) == len(tap), name
        assert tap[:].tobytes() == other[:len(tap)].tobytes(), name
        rows += len(tap)
    print(f"{len(kept)} of {len(all_taps)} taps, {rows} rows, bit-equal")


a, b = (h5py.File(path) for path in sys.argv[-2:])
check_part(a, b) if sys.argv[1] == "--part" else check_stats(a, b)
