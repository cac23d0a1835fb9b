"""DSpark draft head: architecture.md section 10, dspark.md sections 4-7."""

import numpy as np

import attention
import hyper
from model import no_tap, prefixed


def main_rows(m, means):
    """Section 10.2: one row per backbone position from the concatenated draft taps."""
    projected = m.ar.g8(means, m.weight("mtp.0.main_proj.weight"))
    return m.ar.rms_norm(projected, m.weight("mtp.0.main_norm.weight"), m.cfg.eps)


def context_kv(m, stage, main, positions):
    """Context KV of one stage: the same main rows for all stages, RoPE at the row's position."""
    return attention.window_kv(m.ar, main, m.weight, f"mtp.{stage}.attn.", m.rope[False], positions, m.cfg)


def ring(m, rows, count):
    """(positions by slot, -1 = never written; ring content by slot) after `count` positions."""
    slots = np.arange(m.cfg.window)
    newest = count - 1
    held = newest - (newest - slots) % m.cfg.window
    held = np.where(held < 0, -1, held)
    return held, np.where(held[:, None] < 0, 0, rows[held])


def stage_attention(m, stage, u, positions, ring_rows, tap):
    """Section 10.3: every row sees all filled ring slots, in slot order, then all rows of the block."""
    prefix, rope, cfg, ar = f"mtp.{stage}.attn.", m.rope[False], m.cfg, m.ar
    r, q = attention.queries(ar, u, m.weight, prefix, rope, positions, cfg)
    kv = attention.window_kv(ar, u, m.weight, prefix, rope, positions, cfg)
    store = np.concatenate([ring_rows, kv])
    lists = np.tile(np.arange(len(store)), (len(u), 1))
    o = attention.sink_attention(ar, q, store, lists, m.weight(prefix + "attn_sink"))
    o, y = attention.output(ar, o, m.weight, prefix, rope, positions, cfg)
    for name, value in (("q_latent", r), ("q", q), ("kv", kv), ("o", o), ("y", y)):
        tap("attn/" + name, value)
    return y


def draft_pass(m, anchor, length, ctx, tap=no_tap, golden=None):
    """One draft pass after `length` backbone positions; (ids, confidence logits, draft logits).

    `ctx` holds the context KV of every stage for positions 0..length-1.
    """
    ar, cfg = m.ar, m.cfg
    rows = cfg.draft_rows
    positions = length + np.arange(rows)
    x, p = m.streams(m.embed(np.array([anchor] + [cfg.noise_id] * (rows - 1))))
    text = np.zeros(rows, bool)
    for stage in range(cfg.n_stages):
        if golden:
            x, p = golden.stage_input(stage, x, p)
        stage_tap = prefixed(tap, f"dspark/stages/{stage}/")
        stage_tap("in", x)
        stage_tap("premix", p)
        held, content = ring(m, ctx[stage], length)

        def attend(u, stage=stage, content=content[held >= 0], stage_tap=stage_tap):
            return stage_attention(m, stage, u, positions, content, stage_tap)

        x, p = m.block(f"mtp.{stage}.", x, p, attend, text, cfg.draft_top_experts, stage_tap)
    h = hyper.collapse(ar, x, p)
    tap("dspark/h", h)
    return sequential_loop(m, anchor, golden.tap("dspark/h", h) if golden else h, tap)


def sequential_loop(m, anchor, h, tap):
    """Head of section 10.3 at temperature 0: bigram bias, lowest id among equal maxima."""
    ar, last = m.ar, f"mtp.{m.cfg.n_stages - 1}."
    base, _ = m.head(h, last + "norm.weight")
    embed, head = (m.weight(last + f"markov_head.{name}.weight") for name in ("embed", "head"))
    proj = m.weight(last + "confidence_head.proj.weight")
    previous, out = anchor, {"markov_embed": [], "draft_logits": [], "draft_ids": [], "confidence": []}
    for i in range(len(h)):
        mu = ar.wide(embed[previous])
        logits = ar.f32(base[i] + ar.gf(mu[None], head)[0])
        previous = int(np.argmax(logits))
        confidence = ar.gf(np.concatenate([h[i], mu])[None], proj)[0, 0]
        for name, value in zip(out, (mu, logits, previous, confidence)):
            out[name].append(value)
    out = {name: np.array(value) for name, value in out.items()}
    tap("dspark/base_logits", base)
    for name, value in out.items():
        tap("dspark/" + name, value)
    return out


def run(m, means, anchor, tap=no_tap, golden=None):
    """Context of all positions, rings as stored, and the draft pass after the last one.

    `means` are the draft taps of positions 0..N-1; `anchor` the token chosen at N-1. With `golden`,
    each step starts from the stored result of the step before (mode injected).
    """
    positions = golden.positions if golden else np.arange(len(means))
    length = golden.length if golden else len(means)
    main = main_rows(m, golden.tap("dspark/tap", means) if golden else means)
    tap("dspark/main", main)
    if golden:
        main = golden.tap("dspark/main", main)
    ctx = []
    for stage in range(m.cfg.n_stages):
        rows = context_kv(m, stage, main, positions)
        tap(f"dspark/ctx_kv/{stage}", rows)
        ctx.append(golden.context(stage, rows) if golden else rows)
        if len(rows) == length:
            held, content = ring(m, rows, length)
            tap("dspark/ring_positions", held)
            tap(f"dspark/ring_kv/{stage}", content)
    return draft_pass(m, anchor, length, ctx, tap, golden)


def all_anchors(m, means, logits):
    """A draft pass after every position t, anchored at the argmax of its logits (draft_all/...)."""
    main = main_rows(m, means)
    ctx = [context_kv(m, stage, main, np.arange(len(main))) for stage in range(m.cfg.n_stages)]
    anchors = np.argmax(logits, axis=1)
    passes = [draft_pass(m, int(a), t + 1, [rows[:t + 1] for rows in ctx]) for t, a in enumerate(anchors)]
    return anchors, {name: np.array([one[name] for one in passes])
                     for name in ("draft_ids", "confidence", "draft_logits")}
