"""Single-pass hyper-connections: architecture.md section 4. Streams X are [rows, 4, D]."""

import numpy as np

from formats import bf16
from numerics import sigmoid


def sinkhorn(c, iterations, eps):
    """Step 5: row softmax, then alternating column and row normalisation, columns last."""
    c = np.exp(c - c.max(axis=-1, keepdims=True))
    c = c / c.sum(axis=-1, keepdims=True) + eps
    c = c / (c.sum(axis=-2, keepdims=True) + eps)
    for _ in range(iterations - 1):
        c = c / (c.sum(axis=-1, keepdims=True) + eps)
        c = c / (c.sum(axis=-2, keepdims=True) + eps)
    return c


def split_mixes(ar, m, scale, base, cfg):
    """Steps 3-5: pre [rows, 4], post [rows, 4], comb [rows, 4, 4], all float32 values."""
    n = cfg.hc
    scale, base = ar.wide(scale), ar.wide(base)
    pre = sigmoid(m[:, :n] * scale[0] + base[:n]) + ar.dtype(cfg.hc_eps)
    post = 2 * sigmoid(m[:, n:2 * n] * scale[1] + base[n:2 * n])
    comb = (m[:, 2 * n:] * scale[2] + base[2 * n:]).reshape(-1, n, n)
    comb = sinkhorn(comb, cfg.hc_iters, ar.dtype(cfg.hc_eps))
    return ar.f32(pre), ar.f32(post), ar.f32(comb)


def mixes(ar, x, fn, scale, base, cfg):
    """H(X; fn, scale, base): projection of the flattened stream, RMS factor applied after it."""
    flat = x.reshape(len(x), -1)
    m = ar.gf(flat, fn) / np.sqrt(ar.mean_square(flat) + ar.dtype(cfg.eps))
    return split_mixes(ar, m, scale, base, cfg)


def collapse(ar, x, weights):
    return bf16(np.einsum("tk,tkd->td", ar.wide(weights), ar.wide(x)))


def expand(ar, y, x, post, comb):
    """X'_k = post_k y + sum_j comb[j][k] X_j: the sum runs over the first index of comb."""
    mixed = np.einsum("tjk,tjd->tkd", ar.wide(comb), ar.wide(x))
    return bf16(ar.wide(post)[:, :, None] * ar.wide(y)[:, None, :] + mixed)
