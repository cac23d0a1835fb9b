"""The backbone and its two drivers: architecture.md section 4, 9 and appendix A.

`prefill` runs all rows from token ids; `injected` runs every layer from inputs given in a dump.
Row t of either is what a prefill of exactly t+1 tokens gives, so rows never depend on later rows.
"""

import numpy as np

import attention
import engram
import ffn
import hyper
import tokenmap
from checkpoint import Checkpoint
from config import load
from formats import bf16
from numerics import Arith, Rope


def no_tap(name, value):
    pass


def prefixed(tap, prefix):
    return lambda name, value: tap(prefix + name, value)


class Taps(dict):
    """Recorder: Taps()(name, value) keeps the array under its dump path."""

    def __call__(self, name, value):
        self[name] = value


class Model:
    def __init__(self, model_dir, ar=None):
        self.cfg = load(model_dir)
        self.ckpt = Checkpoint(model_dir)
        self.hash = tokenmap.EngramHash(self.cfg, tokenmap.load_class_map(model_dir, self.cfg))
        self.set_arith(ar or Arith())

    def set_arith(self, ar):
        """Another way of summing on the same weights."""
        self.ar = ar
        self.rope = {kind: Rope(ar, self.cfg, kind) for kind in (False, True)}

    def weight(self, name):
        return self.ckpt.weight(name)

    def embed(self, token_ids):
        if token_ids.min() < 0 or token_ids.max() >= self.cfg.vocab:
            raise ValueError(f"token id outside 0..{self.cfg.vocab - 1}")
        return self.ar.wide(self.weight("embed.weight")[token_ids])

    def streams(self, embed):
        """Initial state of section 4: equal copies, one-hot pre-mix."""
        x = np.repeat(self.ar.wide(embed)[:, None], self.cfg.hc, axis=1)
        return x, np.tile(np.eye(self.cfg.hc, dtype=self.ar.dtype)[0], (len(x), 1))

    def mixes(self, x, name):
        w = self.weight
        return hyper.mixes(self.ar, x, w(name + "_fn"), w(name + "_scale"), w(name + "_base"), self.cfg)

    def block(self, prefix, x, p, attend, image_mask, top_experts, tap):
        """Steps 3-7 of section 4 for one block; `attend` is the attention on its input u."""
        ar, cfg = self.ar, self.cfg
        pre, post, comb = self.mixes(x, prefix + "hc_attn")
        for name, value in (("pre", pre), ("post", post), ("comb", comb)):
            tap("attn/" + name, value)
        u = ar.rms_norm(hyper.collapse(ar, x, p), self.weight(prefix + "attn_norm.weight"), cfg.eps)
        tap("attn/u", u)
        x = hyper.expand(ar, attend(u), x, post, comb)
        tap("mid", x)
        carried, post, comb = self.mixes(x, prefix + "hc_ffn")
        for name, value in (("pre", carried), ("post", post), ("comb", comb)):
            tap("ffn/" + name, value)
        u = ar.rms_norm(hyper.collapse(ar, x, pre), self.weight(prefix + "ffn_norm.weight"), cfg.eps)
        tap("ffn/u", u)
        y = ffn.moe(ar, u, self.weight, prefix + "ffn.", image_mask, top_experts, cfg, tap)
        x = hyper.expand(ar, y, x, post, comb)
        tap("out", x)
        return x, carried

    def layer(self, layer, x, p, inputs, shared, tap):
        """LAYER(l, X, p) of appendix A.1; returns (X, p, draft tap or None)."""
        rows = shared.positions
        tap("in", x)
        tap("premix", p)
        mask = inputs.image_mask[rows]
        if layer in self.cfg.engram_layers:
            table_rows = self.hash.rows(layer, inputs.token_ids, inputs.image_mask)[rows]
            x = engram.write(self, layer, x, table_rows, mask, tap)
        mean = bf16(x.mean(axis=1)) if layer in self.cfg.target_layers else None  # section 10.2

        def attend(u):
            return attention.attend(self, layer, u, rows, shared, tap)

        return *self.block(f"layers.{layer}.", x, p, attend, mask, self.cfg.top_experts, tap), mean

    def head(self, h, norm="norm.weight"):
        """Section 9: float32 logits of collapsed rows; also the normed rows."""
        normed = self.ar.rms_norm(h, self.weight(norm), self.cfg.eps)
        return self.ar.gf(normed, self.weight("head.weight")), normed


class Inputs:
    """Token ids, and for image prompts the mask of span positions and the embedded rows."""

    def __init__(self, token_ids, image_mask=None, embed=None, token_types=None):
        self.token_ids = np.asarray(token_ids, np.int64)
        self.has_images = image_mask is not None
        self.image_mask = np.zeros(len(self.token_ids), bool)
        if self.has_images:
            self.image_mask |= np.asarray(image_mask, bool)
        self.embed, self.token_types = embed, token_types

    def __len__(self):
        return len(self.token_ids)

    def embedded(self, m):
        return m.ar.wide(self.embed) if self.embed is not None else m.embed(self.token_ids)


class Shared:
    """What layers hand to later layers in one pass: caches, pool, list (appendix A.2).

    With `golden` (a dump, see dump.Golden) a layer reads what *other* layers left from the dump where
    the dump has it, and its own results from itself. A dump that holds a subset of the rows must
    also supply the caches that the absent rows would have filled.
    """

    def __init__(self, length, golden=None, oneshot=False):
        self.length, self.oneshot, self.golden = length, oneshot, golden
        self.positions = golden.positions if golden else np.arange(length)
        self.store, self.pool, self.topk, self.topk_layer = {}, None, None, None

    def stored(self, name, layer, default):
        return self.golden.attention_tap(name, layer, default) if self.golden else default

    def window(self, layer, own):
        """Window keys of all positions, None where a trimmed dump lacks them."""
        store = own if len(own) == self.length else self.stored("kv_window", layer, None)
        return store if store is not None and len(store) == self.length else None

    def put(self, name, layer, own):
        self.store[name, layer] = own

    def get(self, name, source, layer):
        own = self.store.get((name, source))
        return own if source == layer and own is not None else self.stored(name, source, own)

    def set_pool(self, own, layer):
        self.pool = self.stored("pool", layer, own)

    def set_topk(self, own, layer):
        self.topk, self.topk_layer = own, layer

    def layer_done(self, layer):
        """The source layer attends with its own list, the layers after it with the stored one."""
        if layer == self.topk_layer:
            self.topk = self.stored("topk", layer, self.topk)


def finish(m, x, p, means, tap):
    """Last collapse, norm, logits; concatenated draft taps (sections 9 and 10.2)."""
    h = hyper.collapse(m.ar, x, p)
    logits, normed = m.head(h)
    for name, value in (("final/h", h), ("final/norm", normed), ("logits", logits)):
        tap(name, value)
    tap("dspark/tap", np.concatenate(means, axis=1))
    return logits


def prefill(m, inputs, tap=no_tap, oneshot=False, enter=None):
    """EXACT_PREFILL of appendix A.3 on all rows; logits of every row.

    `enter(layer, x)` may exchange the stream that enters a layer: how an error grows is measured so.
    """
    embed = inputs.embedded(m)
    tap("embed", embed)
    x, p = m.streams(embed)
    shared, means = Shared(len(inputs), oneshot=oneshot), []
    for layer in range(m.cfg.n_layers):
        x = enter(layer, x) if enter else x
        x, p, mean = m.layer(layer, x, p, inputs, shared, prefixed(tap, f"layers/{layer:02}/"))
        means += [mean] if mean is not None else []
    return finish(m, x, p, means, tap)


def injected(m, inputs, golden, tap=no_tap, oneshot=False):
    """Every layer from the stored `in` and `premix` (dump-schema.md section 7, mode injected).

    Layers that read another layer's cache, pool or list take the stored one where the dump has it,
    else what the source layer computed from its own stored inputs.
    """
    shared, means = Shared(len(inputs), golden, oneshot), []
    for layer in range(m.cfg.n_layers):
        x, p = golden.layer_input(layer)
        x, p, mean = m.layer(layer, x, p, inputs, shared, prefixed(tap, f"layers/{layer:02}/"))
        shared.layer_done(layer)
        means += [mean] if mean is not None else []
    last = f"layers/{m.cfg.n_layers - 1:02}/"
    x, p = golden.tap(last + "out", x), golden.tap(last + "ffn/pre", p)
    return finish(m, x, p, means, tap)
