"""Index scores, candidate pool and top-k: architecture.md section 6.

Ties: larger score first, then smaller id (sections 6.3 and 6.4, recommended rule).
"""

import numpy as np

from formats import bf16, q4x

ROW_CHUNK = 128


def visible(positions, ratio):
    """V(t): entries of a ratio-r cache that row t sees (section 5.3)."""
    return (np.asarray(positions) + 1) // ratio


def index_keys(ar, latent, w, prefix, rope, ratio, cfg):
    """Section 6.1: from the unrotated latent; entry j sits at position j * ratio."""
    k = ar.gb(latent, w(prefix + "wk.weight"))
    k = ar.rms_norm(k, w(prefix + "k_norm.weight"), cfg.eps)
    return q4x(rope(k, np.arange(len(k)) * ratio))


def index_query(ar, u, r, w, prefix, rope, positions, cfg):
    """Section 6.2: index_q [rows, heads, dim] and index_w [rows, heads]."""
    q = ar.g8(r, w(prefix + "wq_b.weight")).reshape(len(r), cfg.index_heads, cfg.index_dim)
    scale = ar.dtype(np.float32(cfg.index_dim**-0.5 * cfg.index_heads**-0.5))
    a = bf16(ar.gb(u, w(prefix + "weights_proj.weight")) * scale)
    return q4x(rope(q, positions)), a


def index_scores(ar, q, a, keys, positions, ratio):
    """bf16 scores [rows, entries], -inf at entries that row t does not see yet."""
    rows, heads, _ = q.shape
    scores = np.empty((rows, len(keys)), ar.dtype)
    for begin in range(0, rows, ROW_CHUNK):
        part = slice(begin, begin + ROW_CHUNK)
        dots = bf16(ar.dot(q[part], keys))
        weighted = bf16(np.maximum(dots, 0) * a[part, :, None])
        scores[part] = bf16(weighted[:, ar.index(heads)].sum(axis=1))
    hidden = np.arange(len(keys)) >= visible(positions, ratio)[:, None]
    scores[hidden] = -np.inf
    return scores


def ranking(scores):
    """Entry ids by falling score, equal scores by rising id."""
    return np.argsort(-scores, axis=1, kind="stable")


def margin(scores, order, k):
    """k-th best minus next best; +inf where nothing is left out (dump-schema.md section 3)."""
    if order.shape[1] <= k:
        return np.full(len(scores), np.inf, np.float32)
    kth, following = (np.take_along_axis(scores, order[:, i:i + 1], 1)[:, 0] for i in (k - 1, k))
    return np.where(following == -np.inf, np.inf, kth - np.where(following == -np.inf, 0, following))


def select_pool(scores, positions, ratio, cfg):
    """Section 6.3: (mask [rows, entries], margin of the block scores)."""
    rows, entries = scores.shape
    blocks = -(-entries // cfg.pool_block)
    padded = np.full((rows, blocks * cfg.pool_block), -np.inf, scores.dtype)
    padded[:, :entries] = scores
    best = padded.reshape(rows, blocks, cfg.pool_block).max(axis=2)
    seen = visible(positions, ratio)
    newest = (seen - 1) // cfg.pool_block
    best[np.flatnonzero(seen), newest[seen > 0]] = np.inf
    order = ranking(best)
    keep = np.zeros(best.shape, bool)
    np.put_along_axis(keep, order[:, :cfg.pool_blocks], True, 1)
    keep &= best > -np.inf
    return np.repeat(keep, cfg.pool_block, axis=1)[:, :entries], margin(best, order, cfg.pool_blocks)


def select_topk(scores, positions, ratio, cfg):
    """Section 6.4: (ascending ids then -1 [rows, K], margin). Validity is by id, not by score."""
    order = ranking(scores)
    k = min(cfg.index_topk, scores.shape[1])
    ids = order[:, :k]
    past_the_end = scores.shape[1]
    ids = np.sort(np.where(ids < visible(positions, ratio)[:, None], ids, past_the_end), axis=1)
    return np.where(ids == past_the_end, -1, ids), margin(scores, order, cfg.index_topk)
