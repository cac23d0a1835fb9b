"""Engram lookup and gated write: architecture.md 8.4 and 8.5."""

import numpy as np

from formats import bf16
from numerics import sigmoid


def gate(ar, x, keys, q_weight, k_weight, cfg):
    """gamma [rows, 4]: norms per stream over D, copysign so that d = 0 gives sigmoid(+0.001)."""
    product = ar.wide(q_weight) * ar.wide(k_weight)
    d = (ar.wide(x) * product * ar.wide(keys)).sum(axis=-1)
    eps = ar.dtype(cfg.eps)
    d = d / np.sqrt(ar.mean_square(x)[..., 0] + eps) / np.sqrt(ar.mean_square(keys)[..., 0] + eps)
    d = d * ar.dtype(cfg.dim**-0.5)
    return sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(d), ar.dtype(1e-6))), d))


def write(m, layer, x, rows, image_mask, tap):
    """X after the write. Column order of the concatenation is that of the hash (section 8.3)."""
    ar, cfg, w, prefix = m.ar, m.cfg, m.weight, f"layers.{layer}.engram."
    emb = ar.wide(m.ckpt.table_rows(prefix + "embed", rows)).reshape(len(rows), -1)
    kv = ar.g8(emb, w(prefix + "wkv.weight")).reshape(len(rows), cfg.hc + 1, cfg.dim)
    keys, value = kv[:, :cfg.hc], kv[:, cfg.hc]
    gamma = gate(ar, x, keys, w(prefix + "q_weight"), w(prefix + "k_weight"), cfg)
    gamma = ar.f32(np.where(image_mask[:, None], 0, gamma))
    out = bf16(ar.wide(x) + gamma[:, :, None] * ar.wide(value)[:, None])
    for name, tapped in (("rows", rows), ("emb", emb), ("kv", kv.reshape(len(rows), -1)),
                         ("gate", gamma), ("out", out)):
        tap(f"engram/{name}", tapped)
    return out
