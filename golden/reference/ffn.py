"""Mixture of experts: architecture.md section 7."""

import numpy as np

from formats import bf16
from numerics import sigmoid


def router_scores(ar, u, gate, cfg):
    """sqrt(softplus(z)), softplus linear above 20."""
    z = ar.gf(u, gate) / ar.dtype(cfg.gate_temp)
    softplus = np.where(z > 20, z, np.log1p(np.exp(np.minimum(z, 20))))
    return ar.f32(np.sqrt(softplus))


def choose(ar, scores, bias, k, cfg):
    """(ascending ids, weights, margin): the bias selects but never weighs."""
    biased = ar.f32(scores + bias)
    order = np.argsort(-biased, axis=1, kind="stable")
    ids = np.sort(order[:, :k], axis=1)
    ranked = np.take_along_axis(biased, order, 1)
    margin = ranked[:, k - 1] - ranked[:, k] if k < scores.shape[1] else np.full(len(scores), np.inf)
    weights = np.take_along_axis(scores, ids, 1)
    if cfg.norm_topk and k > 1:
        weights = weights / (weights.sum(axis=1, keepdims=True) + ar.dtype(1e-20))
    return ids, ar.f32(weights * ar.dtype(cfg.route_scale)), ar.f32(margin)


def expert(ar, u, w, prefix, limit, weight=None):
    """One SwiGLU expert: up clamped on both sides, gate from above only; weight before w2."""
    g = ar.wide(ar.g8(u, w(prefix + "w1.weight")))
    v = ar.wide(ar.g8(u, w(prefix + "w3.weight")))
    v, g = np.clip(v, -limit, limit), np.minimum(g, limit)
    h = g * sigmoid(g) * v
    if weight is not None:
        h = weight[:, None] * h
    return ar.g8(bf16(h), w(prefix + "w2.weight"))


def moe(ar, u, w, prefix, image_mask, k, cfg, tap):
    """Routed experts added in ascending id, the shared expert last, one rounding."""
    scores = router_scores(ar, u, w(prefix + "gate.weight"), cfg)
    bias = w(prefix + "gate.bias")[None]
    if image_mask.any():
        bias = np.where(image_mask[:, None], w(prefix + "gate.bias_vl"), bias)
    ids, weights, margin = choose(ar, scores, bias, k, cfg)
    for name, value in (("router_scores", scores), ("expert_ids", ids), ("expert_weights", weights),
                        ("expert_margin", margin)):
        tap(f"ffn/{name}", value)
    total = np.zeros(u.shape, ar.dtype)
    for e in np.unique(ids):
        rows, slot = np.nonzero(ids == e)
        total[rows] += expert(ar, u[rows], w, f"{prefix}experts.{e}.", cfg.swiglu_limit, weights[rows, slot])
    y = bf16(total + expert(ar, u, w, prefix + "shared_experts.", cfg.swiglu_limit))
    tap("ffn/y", y)
    return y
