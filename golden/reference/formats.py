"""Number formats and quantisers: architecture.md section 3.1-3.3 and appendix B.

Values are carried as float64 (or float32) arrays that lie exactly on the grid of the format named
by the function; codes exist only where a byte layout is wanted. Nothing here looks at a model.
"""

import numpy as np

# The constants of section 3.1-3.3 are float32 numbers: the scale decision compares float32 products.
INV_448 = np.float32(1.0 / 448.0)
INV_6 = np.float32(1.0 / 6.0)
Q8_FLOOR = np.float32(1e-4)
Q4X_FLOOR = np.float32(6.0 * 2.0**-126)
Q4N_FLOOR = np.float32(6.0 * 2.0**-9)

E2M1_TABLE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def round_float(x, digits, emin):
    """Nearest-even rounding to `digits` significant bits with smallest normal exponent `emin`.

    Below 2^emin the quantum stays that of 2^emin, which is what makes subnormals (appendix B).
    The sign of zero survives. One rounding from whatever precision comes in.
    """
    x = np.asarray(x)
    wide = x.astype(np.float64)
    exponent = np.frexp(wide)[1] - 1
    quantum = np.ldexp(1.0, np.maximum(exponent, emin) - (digits - 1))
    return (np.rint(wide / quantum) * quantum).astype(x.dtype)


def bf16(x):
    """A float32 rounded to its upper 16 bits (appendix B), so wider input becomes float32 first.

    The step matters: float32 arithmetic often lands exactly half way between two bf16 values, and
    rounding a float64 sum in one go would then break the tie by digits that float32 never had.
    """
    x = np.asarray(x)
    return round_float(x.astype(np.float32), 8, -126).astype(x.dtype)


def e4m3(x):
    """Finite-only OCP e4m3; callers clamp first, the minimum guards the scale of section 3.3."""
    return round_float(np.clip(x, -448.0, 448.0), 4, -6)


def e2m1(x):
    """Magnitudes 0 .5 1 1.5 2 3 4 6: two significant bits, smallest normal 1 (section 3.3 ties)."""
    return round_float(np.clip(x, -6.0, 6.0), 2, 0)


def pow2ceil_exponent(amax, inverse):
    """k of section 3.1, read from the IEEE fields of the float32 product amax * inverse."""
    product = np.asarray(amax, np.float32) * np.float32(inverse)
    bits = product.view(np.uint32).astype(np.int64)
    return (bits >> 23 & 0xFF) - 127 + ((bits & 0x7FFFFF) != 0)


def group_amax(groups, floor):
    return np.maximum(np.abs(groups).max(axis=-1, keepdims=True).astype(np.float32), floor)


def quantise_pow2(x, group, floor, inverse, grid):
    """(value on the unit grid, exponent of the scale) per group: the common part of Q8 and Q4x.

    Division by a power of two is exact, so its precision does not matter.
    """
    groups = np.asarray(x, np.float64).reshape(*x.shape[:-1], x.shape[-1] // group, group)
    k = pow2ceil_exponent(group_amax(groups, floor), inverse)
    return grid(np.ldexp(groups, -k)), k


def q8_codes(x):
    """Section 3.2: e4m3 values and ue8m0 exponents, groups of 32 channels."""
    return quantise_pow2(x, 32, Q8_FLOOR, INV_448, e4m3)


def q4x_codes(x):
    """Section 3.3, indexer: e2m1 values and ue8m0 exponents, groups of 32 channels."""
    return quantise_pow2(x, 32, Q4X_FLOOR, INV_6, e2m1)


def q4n_codes(x):
    """Section 3.3, main KV: e2m1 values and e4m3 scales, groups of 16, true float32 divisions."""
    groups = np.asarray(x, np.float32).reshape(*x.shape[:-1], x.shape[-1] // 16, 16)
    scale = e4m3(group_amax(groups, Q4N_FLOOR) / np.float32(6.0))
    return e2m1(groups / scale).astype(np.float64), scale.astype(np.float64)


def q8(x):
    """Round trip of section 3.2."""
    q, k = q8_codes(x)
    return bf16(np.ldexp(q, k)).reshape(x.shape).astype(x.dtype)


def q4x(x):
    """Round trip of section 3.3, indexer form."""
    q, k = q4x_codes(x)
    return bf16(np.ldexp(q, k)).reshape(x.shape).astype(x.dtype)


def q4n(x):
    """Round trip of section 3.3, main-KV form."""
    q, scale = q4n_codes(x)
    return bf16(q * scale).reshape(x.shape).astype(x.dtype)


def decode_bf16(words):
    """uint16 words to float32: bf16 is the upper half of a float32 (appendix B)."""
    return (np.asarray(words, np.uint16).astype(np.uint32) << 16).view(np.float32)


def encode_bf16(values):
    """Words of values that already lie on the bf16 grid."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _e4m3_table():
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    magnitude[exponent * 8 + mantissa == 127] = np.nan
    return np.where(code >= 128, -magnitude, magnitude)


E4M3_TABLE = _e4m3_table()


def decode_e4m3(codes):
    """uint8 to float64 (appendix B); 0x7F and 0xFF are NaN and must not occur in a checkpoint."""
    return E4M3_TABLE[codes]


def encode_e4m3(values):
    """Codes of values on the e4m3 grid, by search in the table of non-negative codes."""
    magnitude = np.searchsorted(E4M3_TABLE[:127], np.abs(values)).astype(np.uint8)
    return magnitude | np.signbit(values).astype(np.uint8) << 7


def encode_e2m1(values):
    """Codes of values on the e2m1 grid: magnitude index | sign << 3 (section 3.3)."""
    magnitude = np.searchsorted(E2M1_TABLE[:8], np.abs(values)).astype(np.uint8)
    return magnitude | np.signbit(values).astype(np.uint8) << 3


def unpack_e2m1(packed):
    """Two values per byte, low nibble = even index (section 12); code 8 decodes to zero."""
    packed = np.asarray(packed, np.uint8)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return E2M1_TABLE[codes] + 0.0


def decode_ue8m0(codes, name=""):
    """2^(u-127) in float64, which holds u = 0 without flushing; 255 is NaN: refused (appendix B)."""
    codes = np.asarray(codes, np.uint8)
    if (codes == 255).any():
        raise ValueError(f"{name}: ue8m0 scale byte 255 (NaN)")
    return np.ldexp(1.0, codes.astype(np.int64) - 127)
