#!/usr/bin/python3
"""Dumps of the reference with one fault planted: what a diff must name, and where.

`plant.py MODEL GOLDEN.h5 OUTDIR [NAME...]` runs the golden prompt once for each fault, in float32 sums of
another order than the golden file's, so that harmless noise lies everywhere and the fault above it.
`plant.py --list` prints name, expected tap and expected words, separated by tabs. This file lies below the
folder of the reference, not in it: the reference's digest does not cover it.
"""

import contextlib
import os
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before NumPy loads its BLAS
    os.environ.setdefault(_name, "1")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import h5py
import numpy as np

import attention
import ffn
import hyper
import indexer
import model
from dump import Golden
from numerics import Arith
from record import write_dump

FAULTS = {}  # name -> (tap that must be named first, words that must be said of it, function)
HERE = {"layer": -1}  # the backbone layer that runs now; -1 outside


def fault(tap, words):
    """Registers a planting function: it gets the model and a `swap(owner, name, make)` to patch with."""
    def add(function):
        FAULTS[function.__name__] = (tap, words, function)
        return function
    return add


def only_in(layer, wrong, right):
    """`wrong` while that layer runs, `right` elsewhere."""
    return lambda *a, **k: (wrong if HERE["layer"] == layer else right)(*a, **k)


@fault("", "")
def none(m, swap):
    """Nothing planted: what the noise of another order of sums alone looks like."""


@fault("layers/06/mid", "all tokens")
def comb_transposed(m, swap):
    swap(hyper, "expand", lambda old: only_in(
        6, lambda ar, y, x, post, comb: old(ar, y, x, post, comb.transpose(0, 2, 1)), old))


@fault("layers/01/attn/o", "rows beyond the window")
def window_one_short(m, swap):
    swap(attention, "window_slots", lambda old: only_in(
        1, lambda positions, window, length=None: old(positions, window - 1, length), old))


@fault("layers/07/attn/topk", "")
def topk_of_source_before(m, swap):
    def make(old):
        kept = {}

        def choose(scores, positions, ratio, cfg):
            if HERE["layer"] == 7:
                scores = np.where(np.isneginf(scores), scores, kept[5])
            kept[HERE["layer"]] = scores
            return old(scores, positions, ratio, cfg)
        return choose
    swap(indexer, "select_topk", make)


@fault("layers/05/attn/pool", "where entries are left out")
def pool_block_off_by_one(m, swap):
    def make(old):
        def pool(scores, positions, ratio, cfg):
            shifted = np.full_like(scores, -np.inf)
            shifted[:, :-cfg.pool_block] = scores[:, cfg.pool_block:]
            return old(shifted, positions, ratio, cfg)
        return pool
    swap(indexer, "select_pool", make)


@fault("layers/03/ffn/y", "rows of expert 5")
def one_experts_scale(m, swap):
    m.ckpt.weight("layers.3.ffn.experts.5.w2.weight")
    swap(m.ckpt.cache, "layers.3.ffn.experts.5.w2.weight", lambda old: old * 2)


@fault("layers/05/attn/q", "where RoPE acts")
def rope_of_ratio_1_plain(m, swap):
    def make(old):
        def attend(m, layer, *rest):
            rope = m.rope
            m.rope = {True: rope[m.cfg.ratios[layer] > 1], False: rope[False]}
            try:
                return old(m, layer, *rest)
            finally:
                m.rope = rope
        return attend
    swap(attention, "attend", make)


@fault("layers/04/engram/rows", "all tokens")
def hash_of_other_layer(m, swap):
    old = m.hash.rows
    m.hash.rows = lambda layer, ids, mask: old(1, ids, mask)


@fault("layers/02/attn/kv_window", "all tokens")
def window_kv_not_fp8(m, swap):
    swap(attention, "q8", lambda old: only_in(2, lambda x: x, old))


@fault("layers/08/attn/o", "all tokens")
def sink_missing(m, swap):
    swap(attention, "sink_attention", lambda old: only_in(
        8, lambda ar, q, kv, lists, sink: old(ar, q, kv, lists, np.full_like(sink, -1e4)), old))


@fault("layers/03/attn/u", "all tokens")
def premix_of_own_sublayer(m, swap):
    def make(old):
        calls = {"n": 0}

        def collapse(ar, x, weights):
            if HERE["layer"] == 3:
                calls["n"] += 1
                if calls["n"] == 1:
                    weights = m.mixes(x, "layers.3.hc_attn")[0]
            return old(ar, x, weights)
        return collapse
    swap(hyper, "collapse", make)


@fault("layers/02/attn/index_scores", "all tokens")
def index_relu_missing(m, swap):
    def make(old):
        def scores(ar, q, a, keys, positions, ratio):
            out = np.empty((len(q), len(keys)), ar.dtype)
            dots = indexer.bf16(ar.dot(q, keys))
            out[:] = indexer.bf16(indexer.bf16(dots * a[:, :, None])[:, ar.index(q.shape[1])].sum(axis=1))
            out[np.arange(len(keys)) >= indexer.visible(positions, ratio)[:, None]] = -np.inf
            return out
        return only_in(2, scores, old)
    swap(indexer, "index_scores", make)


@fault("final/h", "all tokens")
def final_collapse_of_attention(m, swap):
    def make(old):
        def finish(m, x, p, means, tap):
            return old(m, x, HERE["pre"], means, tap)
        return finish
    swap(model, "finish", make)

    def split(old):
        def mixes(*a):
            out = old(*a)
            if HERE["layer"] == m.cfg.n_layers - 1 and not HERE.get("pre_kept"):
                HERE["pre"], HERE["pre_kept"] = out[0], True
            return out
        return mixes
    swap(hyper, "mixes", split)


@fault("layers/02/attn/kv_main", "where RoPE acts")
def entry_at_its_last_token(m, swap):
    def compress(m, layer, u, rope, shared, tap):
        ratio, prefix = m.cfg.ratios[layer], f"layers.{layer}.attn."
        latent = attention.latents(m.ar, u, m.weight, prefix + "compressor.", ratio, m.cfg)
        index_k = indexer.index_keys(m.ar, latent, m.weight, prefix + "indexer.", rope, ratio, m.cfg)
        kv_main = attention.q4n(rope(latent, np.arange(len(latent)) * ratio + ratio - 1))
        for name, value in (("latent", latent), ("kv_main", kv_main), ("index_k", index_k)):
            tap(f"attn/{name}", value)
            shared.put(name, layer, value)
    swap(attention, "compress", lambda old: only_in(2, compress, old))


@fault("layers/04/ffn/expert_weights", "all tokens")
def bias_in_expert_weights(m, swap):
    def make(old):
        def choose(ar, scores, bias, k, cfg):
            ids, _, margin = old(ar, scores, bias, k, cfg)
            biased = np.take_along_axis(ar.f32(scores + bias), ids, 1)
            weights = biased / biased.sum(axis=1, keepdims=True)
            return ids, ar.f32(weights * ar.dtype(cfg.route_scale)), margin
        return only_in(4, choose, old)
    swap(ffn, "choose", make)


@fault("dspark/stages/0/attn/o", "")
def draft_block_causal(m, swap):
    def make(old):
        def attend(ar, q, kv, lists, sink):
            if HERE["layer"] < 0:  # a draft stage: row i no longer sees the rows after it
                rows = len(lists)
                later = np.arange(lists.shape[1])[None] - (lists.shape[1] - rows) > np.arange(rows)[:, None]
                lists = np.where(later, -1, lists)
            return old(ar, q, kv, lists, sink)
        return attend
    swap(attention, "sink_attention", make)


@contextlib.contextmanager
def planted(m, function):
    """The fault while the block runs; everything as it was afterwards."""
    undo = []

    def swap(owner, name, make):
        table = owner if isinstance(owner, dict) else vars(owner)
        undo.append((table, name, table[name]))
        if isinstance(owner, dict):
            owner[name] = make(owner[name])
        else:
            setattr(owner, name, make(getattr(owner, name)))

    run, rows = model.Model.layer, m.hash.rows

    def layer(self, number, *rest):
        HERE["layer"] = number
        try:
            return run(self, number, *rest)
        finally:
            HERE["layer"] = -1

    model.Model.layer = layer
    try:
        function(m, swap)
        yield
    finally:
        model.Model.layer, m.hash.rows = run, rows
        for table, name, old in undo:
            if isinstance(table, dict):
                table[name] = old
            else:
                for owner in (attention, ffn, hyper, indexer, model):
                    if vars(owner) is table or owner.__name__ == table.get("__name__"):
                        setattr(owner, name, old)
        HERE.clear()
        HERE["layer"] = -1


def write(m, golden, name, path):
    """The dump of one fault. It names itself: no floor and no suite may take it for a reference."""
    with planted(m, FAULTS[name][2]):
        write_dump(m, golden.inputs(), path, False, f"fault {name} planted")
    if name == "none":
        return
    with h5py.File(path, "r+") as f:
        f.attrs["producer"] = np.bytes_(f"the reference with the fault {name}".encode())
        f.attrs["plan_digest"] = np.bytes_(f"fault {name}".encode())


def main(argv):
    if argv == ["--list"]:
        print("\n".join(f"{name}\t{tap}\t{words}" for name, (tap, words, _) in FAULTS.items()))
        return 0
    if len(argv) < 3 or any(name not in FAULTS for name in argv[3:]):
        print(__doc__, file=sys.stderr)
        return 2
    m, golden = model.Model(argv[0], Arith("f32", "reversed")), Golden(argv[1])
    m.cfg.name = golden.file.attrs["model"].decode()
    os.makedirs(argv[2], exist_ok=True)
    for name in argv[3:] or FAULTS:
        write(m, golden, name, os.path.join(argv[2], f"{name}.h5"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
