"""CSA2 attention: architecture.md section 5 and appendix A.2."""

import numpy as np

import indexer
from config import source_of
from formats import bf16, q4n, q8

BLOCK = 64
ROW_CHUNK = 128


def window_slots(positions, window, length=None):
    """Window part of the list, section 5.3: ascending positions max(0, t-W+1)..t, then -1.

    Without `length`, row t gets what a prefill of exactly t+1 tokens gives it; `length` = N makes
    the min(N, W) slots of a one-shot prefill of N tokens (section 5.4, reference rounding).
    """
    t = np.asarray(positions)[:, None]
    slots = np.maximum(0, t - window + 1) + np.arange(min(window, length or window))
    return np.where(slots <= t, slots, -1)


def attention_list(window, topk, n_window, compact):
    """Row lists into the concatenation [window store, main KV]; padding -1.

    `compact` moves padding behind the compressed ids, so that the 64-slot blocks of row t are cut
    as in a prefill of t+1 tokens.
    """
    if topk is None:
        return window
    listed = np.concatenate([window, np.where(topk < 0, -1, topk + n_window)], axis=1)
    if compact:
        listed = np.take_along_axis(listed, np.argsort(listed < 0, axis=1, kind="stable"), 1)
    return listed


def sink_attention(ar, q, kv, lists, sink):
    """Section 5.4: online softmax over blocks of 64 list slots, probabilities rounded to bf16.

    q [rows, heads, dim], kv [slots, dim] shared by all heads and used as key and value.
    """
    out = np.empty(q.shape, ar.dtype)
    for begin in range(0, len(q), ROW_CHUNK):
        part = slice(begin, begin + ROW_CHUNK)
        out[part] = _sink_attention(ar, ar.wide(q[part]), ar.wide(kv), lists[part], ar.wide(sink))
    return bf16(out)


def _sink_attention(ar, q, kv, lists, sink):
    rows, heads, dim = q.shape
    channel = ar.index(dim)
    highest = np.full((rows, heads), -1e30, ar.dtype)
    total = np.zeros((rows, heads), ar.dtype)
    acc = np.zeros((rows, heads, dim), ar.dtype)
    for begin in range(0, lists.shape[1], BLOCK):
        ids = lists[:, begin:begin + BLOCK]
        block = kv[ids]
        logits = q[:, :, channel] @ block[:, :, channel].transpose(0, 2, 1) * ar.dtype(dim**-0.5)
        logits = np.where(ids[:, None, :] < 0, -np.inf, logits)
        raised = np.maximum(highest, logits.max(axis=-1))
        p = np.exp(logits - raised[:, :, None])
        decay = np.exp(highest - raised)
        total = total * decay + p.sum(axis=-1)
        slot = ar.index(p.shape[-1])
        acc = acc * decay[:, :, None] + bf16(p)[:, :, slot] @ block[:, slot]
        highest = raised
    total = total + np.exp(sink - highest)
    return acc / total[:, :, None]


def queries(ar, u, w, prefix, rope, positions, cfg):
    """Section 5.1: q_norm output r (shared with the indexer) and rotated q; no per-head norm."""
    r = ar.rms_norm(ar.g8(u, w(prefix + "wq_a.weight")), w(prefix + "q_norm.weight"), cfg.eps)
    q = ar.g8(r, w(prefix + "wq_b.weight")).reshape(len(u), cfg.n_heads, cfg.head_dim)
    return r, rope(q, positions)


def window_kv(ar, u, w, prefix, rope, positions, cfg):
    """Section 5.1: K = V of the window branch, Q8 over all channels, RoPE tail included."""
    kv = ar.rms_norm(ar.g8(u, w(prefix + "wkv.weight")), w(prefix + "kv_norm.weight"), cfg.eps)
    return q8(rope(kv, positions))


def latents(ar, u, w, prefix, ratio, cfg):
    """Section 5.2: unrotated latents of the complete groups; u holds all positions from 0."""
    if ratio == 1:
        pooled = ar.gb(u, w(prefix + "wkv.weight"))
    else:
        groups = len(u) // ratio
        v, g = (ar.gf(u[:groups * ratio], w(prefix + name)).reshape(groups, ratio, cfg.head_dim)
                for name in ("wkv.weight", "wgate.weight"))
        share = np.exp(g - g.max(axis=1, keepdims=True))
        pooled = bf16((share / share.sum(axis=1, keepdims=True) * v).sum(axis=1))
    return ar.rms_norm(pooled, w(prefix + "norm.weight"), cfg.eps)


def output(ar, o, w, prefix, rope, positions, cfg):
    """Section 5.5: inverse RoPE, grouped wo_a in bf16 without quantising o, then wo_b."""
    o = rope(o, positions, inverse=True)
    grouped = o.reshape(len(o), cfg.o_groups, -1)
    weights = w(prefix + "wo_a.weight").reshape(cfg.o_groups, cfg.o_lora, -1)
    z = np.concatenate([ar.gb(grouped[:, g], weights[g]) for g in range(cfg.o_groups)], axis=1)
    return o, ar.g8(z, w(prefix + "wo_b.weight"))


def attend(m, layer, u, positions, shared, tap):
    """ATTN(l, u) of appendix A.2 for the rows at `positions`.

    `shared` carries what later layers read: kv_main and index_k by source layer, pool and topk of
    the last source. Where a dump supplies a subset of the rows, its caches stand for the absent ones.
    """
    ar, cfg, w, prefix = m.ar, m.cfg, m.weight, f"layers.{layer}.attn."
    ratio = cfg.ratios[layer]
    rope = m.rope[ratio > 0]
    r, q = queries(ar, u, w, prefix, rope, positions, cfg)
    kv = window_kv(ar, u, w, prefix, rope, positions, cfg)
    for name, value in (("q_latent", r), ("q", q), ("kv_window", kv)):
        tap(f"attn/{name}", value)
    stores, topk = [shared.window(layer, kv)], None
    if ratio:
        source = source_of(layer, cfg.kv_sources)
        if layer == source and len(u) == shared.length:
            compress(m, layer, u, rope, shared, tap)
        if layer in cfg.index_sources:
            select(m, layer, u, r, rope, positions, shared, tap)
        stores.append(shared.get("kv_main", source, layer))
        topk = shared.topk
    if stores[0] is None:  # a trimmed dump without the window rows: the layer goes on from its stored y
        return shared.stored("y", layer, None)
    window = window_slots(positions, cfg.window, shared.length if shared.oneshot else None)
    lists = attention_list(window, topk, len(stores[0]), not shared.oneshot)
    o = sink_attention(ar, q, np.concatenate(stores), lists, w(prefix + "attn_sink"))
    o, y = output(ar, o, w, prefix, rope, positions, cfg)
    tap("attn/o", o)
    tap("attn/y", y)
    return y


def compress(m, layer, u, rope, shared, tap):
    """Sections 5.2 and 6.1: the entries of a kv source; the index key comes from the unrotated latent."""
    ratio, prefix = m.cfg.ratios[layer], f"layers.{layer}.attn."
    latent = latents(m.ar, u, m.weight, prefix + "compressor.", ratio, m.cfg)
    index_k = indexer.index_keys(m.ar, latent, m.weight, prefix + "indexer.", rope, ratio, m.cfg)
    kv_main = q4n(rope(latent, np.arange(len(latent)) * ratio))
    for name, value in (("latent", latent), ("kv_main", kv_main), ("index_k", index_k)):
        tap(f"attn/{name}", value)
        shared.put(name, layer, value)


def select(m, layer, u, r, rope, positions, shared, tap):
    """Sections 6.2-6.4: scores, pool and list of an index source."""
    ar, cfg, ratio = m.ar, m.cfg, m.cfg.ratios[layer]
    keys = shared.get("index_k", source_of(layer, cfg.kv_sources), layer)
    q, a = indexer.index_query(ar, u, r, m.weight, f"layers.{layer}.attn.indexer.", rope, positions, cfg)
    scores = indexer.index_scores(ar, q, a, keys, positions, ratio)
    for name, value in (("index_q", q), ("index_w", a), ("index_scores", scores)):
        tap(f"attn/{name}", value)
    if layer == cfg.pool_layer:
        pool, pool_margin = indexer.select_pool(scores, positions, ratio, cfg)
        tap("attn/pool", pool)
        tap("attn/pool_margin", ar.f32(pool_margin))
        shared.set_pool(pool, layer)
    elif layer > cfg.pool_layer:
        scores = np.where(shared.pool, scores, -np.inf)
    topk, topk_margin = indexer.select_topk(scores, positions, ratio, cfg)
    tap("attn/topk", topk)
    tap("attn/topk_margin", ar.f32(topk_margin))
    shared.set_topk(topk, layer)
