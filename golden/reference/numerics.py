"""Arithmetic of the forward pass: GEMM kinds, norms, RoPE (architecture.md sections 3.4-3.6).

One `Arith` object fixes how the sums between two specified roundings are done. The default, float64,
makes those sums exact for practical purposes; float32 with some summation order is a harmless
variant used to measure the noise floor. The specified roundings are the same in all of them.
"""

import numpy as np

from formats import bf16, q8

ORDERS = ("forward", "reversed", "permuted")


class Arith:
    def __init__(self, precision="f64", order="forward", seed=1, rope="f64"):
        self.dtype = {"f64": np.float64, "f32": np.float32}[precision]
        self.name = f"{precision},{order}" + (f"{seed}" if order == "permuted" else "")
        self.order, self.seed, self.rope = order, seed, rope

    def wide(self, x):
        return np.asarray(x, self.dtype)

    def f32(self, x):
        """A value that the specification holds in float32."""
        return np.asarray(x).astype(np.float32).astype(self.dtype)

    def index(self, n):
        """Order in which n products of a dot product are taken."""
        if self.order == "reversed":
            return np.arange(n)[::-1]
        if self.order == "permuted":
            return np.random.default_rng([self.seed, n]).permutation(n)
        return np.arange(n)

    def dot(self, x, w):
        """x [..., K] times w [n, K] -> [..., n], no rounding of the result."""
        x, w = self.wide(x), self.wide(w)
        if self.dtype is np.float64:
            return x @ w.T
        k = self.index(x.shape[-1])
        return x[..., k] @ w[:, k].T

    def dot_blocks(self, x, w):
        """The same for scaled operands: one partial per 32 inputs, partials added in increasing k.

        Scales are powers of two, so applying them to the operands instead of to the partial sums
        changes no bit (section 3.4, G8).
        """
        if self.dtype is np.float64:
            return self.dot(x, w)
        shape, k = x.shape[:-1] + (w.shape[0],), self.index(32)
        x = self.wide(x).reshape(-1, x.shape[-1] // 32, 32)[:, :, k]
        w = self.wide(w).reshape(w.shape[0], -1, 32)[:, :, k]
        total = np.zeros((x.shape[0], w.shape[0]), np.float32)
        for block in range(x.shape[1]):
            total += x[:, block] @ w[:, block].T
        return total.reshape(shape)

    def gf(self, x, w):
        """GF: float32 operands, float32 result."""
        return self.f32(self.dot(x, w))

    def gb(self, x, w):
        """GB: bf16 operands, bf16 result."""
        return bf16(self.dot(x, w))

    def g8(self, x, w):
        """G8 and G4: the activation goes through Q8, the weight comes dequantised; bf16 result."""
        return bf16(self.dot_blocks(q8(x), w))

    def mean_square(self, x):
        x = self.wide(x)
        return np.mean(x * x, axis=-1, keepdims=True)

    def rms_norm(self, x, weight, eps):
        """Section 3.5: normalise, then weight, one rounding."""
        x = self.wide(x)
        return bf16(self.wide(weight) * (x / np.sqrt(self.mean_square(x) + self.dtype(eps))))


def sigmoid(x):
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right limit, 0
        return 1 / (1 + np.exp(-x))


def rope_frequencies(cfg, compressed):
    """f_i of section 3.6; `compressed` selects the 160000 + YaRN table.

    Every step is a float32 operation, the power correctly rounded: one unit in the last place of f_i
    is visible in q at a few thousand positions, and this is the sequence the publisher's data show.
    """
    one = np.float32(1)
    base = cfg.compress_rope_theta if compressed else cfg.rope_theta
    exponent = np.arange(0, cfg.rope_dim, 2, dtype=np.float32) / np.float32(cfg.rope_dim)
    g = one / (float(base) ** exponent.astype(np.float64)).astype(np.float32)
    if not compressed:
        return g

    def boundary(rotations):
        return cfg.rope_dim * np.log(cfg.yarn_original / (rotations * 2 * np.pi)) / (2 * np.log(base))

    low = max(np.floor(boundary(cfg.beta_fast)), 0)
    high = min(np.ceil(boundary(cfg.beta_slow)), cfg.rope_dim - 1)
    i = np.arange(len(g), dtype=np.float32)
    ramp = np.clip((i - np.float32(low)) / np.float32(max(high - low, 1e-3)), 0, one)
    return g / np.float32(cfg.yarn_factor) * ramp + g * (one - ramp)


class Rope:
    """Tables and rotation of section 3.6: the last rope_dim channels, adjacent pairs."""

    def __init__(self, ar, cfg, compressed):
        self.ar, self.dim = ar, cfg.rope_dim
        self.frequency = rope_frequencies(cfg, compressed)

    def __call__(self, x, positions, inverse=False):
        """x [rows, ..., channels], one position per row."""
        angle = np.asarray(positions, np.float32)[:, None] * self.frequency
        if self.ar.rope == "f64":  # rounded from float64; "f32" takes the library's float32 functions
            angle = angle.astype(np.float64)
        c, s = self.ar.f32(np.cos(angle)), self.ar.f32(np.sin(angle))
        if inverse:
            s = -s
        middle = (1,) * (x.ndim - 2)
        c, s = (a.reshape(len(positions), *middle, self.dim // 2) for a in (c, s))
        even, odd = (self.ar.wide(x[..., -self.dim + k::2]) for k in (0, 1))
        out = x.copy()
        out[..., -self.dim::2] = bf16(even * c - odd * s)
        out[..., -self.dim + 1::2] = bf16(even * s + odd * c)
        return out
