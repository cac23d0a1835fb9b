"""From a foreign array to the schema's: decoding of narrow formats, joining of ranks, and the operations of a map."""

import numpy as np

from . import Refused


def misfit(what, text):
    return Refused(1, f"{what}: {text}")


# ---- formats: exact, every value of each fits float32 -----------------------------------------------------------

def small_floats(exponent, mantissa, bias, nan):
    """Values of all codes of a sign-exponent-mantissa format without infinities; `nan`: the largest code is NaN."""
    codes = np.arange(1 << (1 + exponent + mantissa))
    e, m = codes >> mantissa & ((1 << exponent) - 1), codes & ((1 << mantissa) - 1)
    value = np.where(e > 0, (1 + m / (1 << mantissa)) * 2.0 ** (e - bias), m / (1 << mantissa) * 2.0 ** (1 - bias))
    value = np.where(codes >> (exponent + mantissa), -value, value).astype(np.float32)
    if nan:
        value[(codes & ((1 << (exponent + mantissa)) - 1)) == (1 << (exponent + mantissa)) - 1] = np.nan
    return value


E4M3, E2M1 = small_floats(4, 3, 7, True), small_floats(2, 1, 1, False)


def decode(bits, form, what):
    """Bits of `form` as float32. Two e2m1 values share a byte, the first one in the low half."""
    if form is None:
        return bits
    item = 2 if form == "bf16" else 1
    if bits.dtype.kind not in "iu" or bits.dtype.itemsize != item:
        raise misfit(what, f"{form} is read from integers of {item} bytes, the tensor is {bits.dtype}")
    bits = bits.view(f"u{item}")
    if form == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if form == "e4m3":
        return E4M3[bits]
    if form == "e5m2":
        return (bits.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if form == "e8m0":
        value = np.ldexp(np.float32(1), np.minimum(bits, 254).astype(np.int32) - 127)
        return np.where(bits == 255, np.float32(np.nan), value)
    if bits.ndim == 0:
        raise misfit(what, "packed e2m1 values want at least one axis")
    return E2M1[np.stack([bits & 15, bits >> 4], -1).reshape(*bits.shape[:-1], -1)]


def scaled(codes, scale, block, what):
    """codes [.., n] times scale [.., n/block]; refused where float32 does not hold the product."""
    if scale.shape != (*codes.shape[:-1], -(-codes.shape[-1] // block)):
        raise misfit(what, f"scales {list(scale.shape)} do not go with {list(codes.shape)} in blocks of {block}")
    wide = codes.astype(np.float64) * np.repeat(scale, block, -1)[..., :codes.shape[-1]].astype(np.float64)
    narrow = wide.astype(np.float32)
    if not np.array_equal(narrow.astype(np.float64), wide, equal_nan=True):
        raise misfit(what, "a scaled value does not fit float32")
    return narrow


def to_bf16(x):
    """Nearest bf16, ties to even, as float32. NaN stays NaN."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, rounded)


def on_bf16_grid(x):
    return not np.any(np.ascontiguousarray(x, np.float32).view(np.uint32) & 0xFFFF)


# ---- ranks ------------------------------------------------------------------------------------------------------

def bits_equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def join_ranks(parts, shard, ranks, what):
    """parts {rank: (array, where)} to one array. shard: "replicated", "sum" or {"axis": a}."""
    present = sorted(parts)
    first, place = parts[present[0]]
    if shard == "replicated":
        for rank in present[1:]:
            array, other = parts[rank]
            if not bits_equal(array, first):
                raise misfit(what, f"ranks {present[0]} and {rank} differ, the map says replicated "
                                   f"({place} {list(first.shape)}, {other} {list(array.shape)})")
        return first
    if present != list(range(ranks)):
        missing = [r for r in range(ranks) if r not in parts]
        raise misfit(what, f"rank {', '.join(map(str, missing))} of {ranks} is missing ({place} is there)")
    arrays = [parts[r][0] for r in present]
    for rank in present[1:]:
        array, other = parts[rank]
        axis = None if shard == "sum" else shard["axis"]
        if not alike(first, array, axis):
            raise misfit(what, f"ranks do not fit together: {place} {list(first.shape)}, {other} {list(array.shape)}")
    if shard == "sum":  # float64: the one rounding that follows is the engine's own, by whatever order it summed
        return np.sum([a.astype(np.float64) for a in arrays], 0).astype(np.float32)
    return np.concatenate(arrays, shard["axis"])


def alike(a, b, axis):
    """Same type and shape, apart from one axis."""
    if a.ndim != b.ndim or a.dtype != b.dtype or axis is not None and not -a.ndim <= axis < a.ndim:
        return False
    return all(m == n for i, (m, n) in enumerate(zip(a.shape, b.shape)) if axis is None or i != axis % a.ndim)


# ---- operations of a map: f(array, argument, context) -----------------------------------------------------------
# context: size(letter or number) -> int, order(path) -> permutation that sorted another tap, what (for messages)

def op_squeeze(x, axis, c):
    if x.ndim <= axis or x.shape[axis] != 1:
        raise misfit(c.what, f"squeeze {axis}: the shape is {list(x.shape)} (more than one sequence? use select)")
    return x.reshape(x.shape[:axis] + x.shape[axis + 1:])


def op_select(x, arg, c):
    axis, index = arg["axis"], arg["index"]
    if x.ndim <= axis or not 0 <= index < x.shape[axis]:
        raise misfit(c.what, f"select {index} of axis {axis}: the shape is {list(x.shape)}")
    return np.take(x, index, axis)


def op_slice(x, arg, c):
    axis, start, stop = arg["axis"], c.size(arg.get("start", 0)), c.size(arg["stop"])
    if x.ndim <= axis or not 0 <= start <= stop <= x.shape[axis]:
        raise misfit(c.what, f"slice {start}..{stop} of axis {axis}: the shape is {list(x.shape)}")
    return np.take(x, range(start, stop), axis)


def op_permute(x, axes, c):
    if sorted(axes) != list(range(x.ndim)):
        raise misfit(c.what, f"permute {axes}: the shape is {list(x.shape)}")
    return x.transpose(axes)


def op_reshape(x, shape, c):
    want = [c.size(s) for s in shape]
    try:
        return x.reshape(want)
    except ValueError:
        raise misfit(c.what, f"reshape to {want}: the shape is {list(x.shape)}") from None


def op_cast(x, kind, c):
    if kind == "bf16":
        return to_bf16(x)
    if kind == "f32":
        return x.astype(np.float32)
    if kind == "int" and x.dtype.kind == "f" and not np.all(x == np.rint(x)):
        raise misfit(c.what, "cast int: a value is not whole")
    return x != 0 if kind == "bool" else x.astype(np.int64)


def op_offset(x, amount, c):
    """Adds to ids; negative ones are padding and stay."""
    return np.where(x < 0, x, x.astype(np.int64) + c.size(amount))


def op_invalid(x, limit, c):
    """Ids outside 0..limit-1 become -1."""
    return np.where((x < 0) | (x >= c.size(limit)), -1, x)


def op_sort(x, _, c):
    return np.take_along_axis(x, ascending(x), -1)


def ascending(x):
    """Order of ids along the last axis, -1 (padding) behind all others."""
    return np.argsort(np.where(x < 0, np.iinfo(np.int64).max, x.astype(np.int64)), -1, kind="stable")


def op_sort_like(x, path, c):
    order = c.order(path)
    if order.shape != x.shape:
        raise misfit(c.what, f"sort_like {path}: {list(order.shape)} there, {list(x.shape)} here")
    return np.take_along_axis(x, order, -1)


def op_pad(x, arg, c):
    axis, to, value = arg["axis"], c.size(arg["to"]), arg["value"]
    if x.ndim <= axis or x.shape[axis] > to:
        raise misfit(c.what, f"pad axis {axis} to {to}: the shape is {list(x.shape)}")
    fill = list(x.shape)
    fill[axis] = to - x.shape[axis]
    return np.concatenate([x, np.full(fill, value, x.dtype)], axis)


def op_chosen(x, arg, c):
    """A mask over entries, or a bias that is 0 where chosen and -inf elsewhere, to ascending ids, -1 behind."""
    mask = x == 0 if arg["where"] == "zero" else x != 0
    width = c.size(arg["width"])
    most = int(mask.sum(-1).max(initial=0))
    if most > width:
        raise misfit(c.what, f"{most} entries chosen in a row, {width} allowed")
    ids = np.where(mask, np.arange(x.shape[-1]), np.iinfo(np.int64).max)
    ids = np.sort(ids, -1)[..., :width]
    ids = np.where(ids == np.iinfo(np.int64).max, -1, ids)
    return op_pad(ids, {"axis": ids.ndim - 1, "to": width, "value": -1}, c)


def op_rope(x, arg, c):
    """Order of the last `size` channels: halves (all first parts, then all second) to pairs, or back."""
    n = c.size(arg["size"])
    if n % 2 or x.shape[-1] < n:
        raise misfit(c.what, f"rope over {n} channels: the shape is {list(x.shape)}")
    order = np.arange(n).reshape(2, n // 2).T.ravel() if arg["to"] == "pairs" else np.r_[0:n:2, 1:n:2]
    rest = x.shape[-1] - n
    return x[..., np.r_[0:rest, rest + order]]


OPS = {name.removeprefix("op_"): f for name, f in list(globals().items()) if name.startswith("op_")}


def apply(ops, x, context):
    for name, arg in ops:
        try:
            x = OPS[name](x, arg, context)
        except (IndexError, TypeError, ValueError) as error:
            raise misfit(context.what, f"{name} {arg}: {error}; the shape is {list(x.shape)}") from None
    return x
