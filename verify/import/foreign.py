"""A golden dump as a made-up engine would dump it: other names and layouts, narrow formats, ranks, steps.

Each exporter undoes what one rule of foreign.yaml does; a bit lost on the way shows in test_import.py.
"""

import json
import os
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from import_dump.transforms import E2M1, E4M3  # noqa: E402  (its values are checked by test_import.py)

RNG = np.random.default_rng(7)


class Bits:
    """Codes of a format that NumPy lacks."""

    def __init__(self, array, form):
        self.array, self.form = array, form

    def cut(self, f):
        return Bits(np.ascontiguousarray(f(self.array)), self.form)


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    assert not np.any(bits & 0xFFFF)
    return Bits((bits >> 16).astype(np.uint16), "bf16")


def quantised(x, block, scales, table):
    """(codes, index into scales) with table[code] * scales[index] == x in each block of channels."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    codes, chosen = np.zeros(blocks.shape, np.uint8), np.full(blocks.shape[:-1], -1)
    order = np.argsort(table, kind="stable")
    order = order[~np.isnan(table[order])]
    for i, s in enumerate(scales):
        with np.errstate(all="ignore"):
            wanted = blocks / s
        at = np.clip(np.searchsorted(table[order], wanted), 0, len(order) - 1)
        fits = np.all(table[order][at] * s == blocks, -1) & (chosen < 0)
        codes[fits], chosen[fits] = order[at][fits], i
    assert np.all(chosen >= 0)
    codes[np.signbit(blocks) & (blocks == 0)] = len(table) // 2
    return codes.reshape(x.shape), chosen


def fp8(x):
    """e4m3 codes and e8m0 scales of 32 channels."""
    exponents = np.arange(-40, 40)
    codes, chosen = quantised(x, 32, 2.0 ** exponents, E4M3)
    return Bits(codes, "e4m3"), Bits((exponents[chosen] + 127).astype(np.uint8), "e8m0")


def fp4(x):
    """Packed e2m1 codes and e4m3 scales of 16 channels."""
    scale_codes = np.arange(1, 0x7F, dtype=np.uint8)
    codes, chosen = quantised(x, 16, E4M3[scale_codes].astype(np.float64), E2M1)
    return Bits(codes[..., 0::2] | codes[..., 1::2] << 4, "e2m1"), Bits(scale_codes[chosen], "e4m3")


def halves(x, n):
    """Rotary channels as all first parts, then all second parts."""
    return np.concatenate([x[..., :-n], x[..., -n::2], x[..., x.shape[-1] - n + 1::2]], -1)


def shuffled(ids, weights):
    order = np.argsort(RNG.random(ids.shape), -1)
    return np.take_along_axis(ids, order, -1).astype(np.int64), np.take_along_axis(weights, order, -1)


class Engine:
    """Exports one golden file: step -> rank -> name -> array or Bits."""

    def __init__(self, golden, ranks, cuts):
        self.file, self.ranks = h5py.File(golden, "r"), ranks
        config = self.file.attrs["config_json"].decode()
        self.config = json.loads(config)["text_config"]
        self.n = len(self.file["token_ids"])
        self.steps = list(zip([0, *cuts], [*cuts, self.n]))
        self.files = [[{} for _ in range(ranks)] for _ in self.steps]
        self.rope = self.config["qk_rope_head_dim"]

    def read(self, path):
        return self.file[path][()]

    def put(self, step, name, value):
        """The same on every rank."""
        for rank in range(self.ranks):
            self.files[step][rank][name] = value

    def split(self, step, name, value, axis):
        cut = value.cut if isinstance(value, Bits) else lambda f: np.ascontiguousarray(f(value))
        size = (value.array if isinstance(value, Bits) else value).shape[axis] // self.ranks
        for rank in range(self.ranks):
            self.files[step][rank][name] = cut(lambda a, r=rank: np.take(a, range(r * size, (r + 1) * size), axis))

    def partial(self, step, name, value):
        """Exact partial sums: a half, a quarter, ..., the last one twice."""
        for rank in range(self.ranks):
            self.files[step][rank][name] = value * np.float32(2.0 ** -min(rank + 1, self.ranks - 1))

    def layer(self, i):
        old, new = f"layers/{i:02}/", f"blocks.{i}."
        ratio = self.config["compress_ratios"][i]
        for step, (a, b) in enumerate(self.steps):
            tokens = {p: self.read(old + p)[a:b] for p in TOKEN_TAPS if old + p in self.file}
            for path, value in tokens.items():
                TOKEN_TAPS[path](self, step, new, value)
            self.experts(step, new, old, a, b)
            self.mixes(step, new, old, a, b)
            if ratio:
                self.entries(step, new, old, a, b, b // ratio)

    def experts(self, step, new, old, a, b):
        has = [old + p in self.file for p in ("ffn/expert_ids", "ffn/expert_weights")]
        if has[0]:
            ids = self.read(old + "ffn/expert_ids")[a:b]
            ids, weights = shuffled(ids, self.read(old + "ffn/expert_weights")[a:b] if has[1] else ids)
            self.put(step, new + "moe.ids", ids)
        if has[1]:
            self.put(step, new + "moe.weights", weights)

    def mixes(self, step, new, old, a, b):
        for half in ("attn", "ffn"):
            if f"{old}{half}/comb" not in self.file:
                if f"{old}{half}/pre" in self.file:
                    self.put(step, f"{new}{half}.pre", self.read(f"{old}{half}/pre")[a:b])
                continue
            parts = [self.read(f"{old}{half}/{p}")[a:b].reshape(b - a, -1) for p in ("pre", "post", "comb")]
            self.put(step, f"{new}{half}.mix", np.concatenate(parts, 1))

    def entries(self, step, new, old, a, b, seen):
        if old + "attn/latent" in self.file:
            self.put(step, new + "latent", bf16(self.read(old + "attn/latent")[step and a // self.ratio_of(old):seen]))
            codes, scales = fp4(self.read(old + "attn/kv_main")[:seen])
            self.put(step, new + "cache.codes", codes)
            self.put(step, new + "cache.scales", scales)
            self.put(step, new + "cache.keys", bf16(self.read(old + "attn/index_k")[:seen]))
        if old + "attn/topk" in self.file:
            if old + "attn/index_scores" in self.file:
                self.put(step, new + "scores", bf16(self.read(old + "attn/index_scores")[a:b, :seen]))
            top = self.read(old + "attn/topk")[a:b, :min(self.config["index_topk"], seen)].astype(np.int64)
            top = np.where(top < 0, 1 << 40, top + 1000)
            self.put(step, new + "picked", top[:, ::-1][None])
        if old + "attn/pool" in self.file:
            self.put(step, new + "candidates", self.read(old + "attn/pool")[a:b, :seen].astype(bool))

    def ratio_of(self, old):
        return self.config["compress_ratios"][int(old[7:9])]

    def globals(self):
        for step, (a, b) in enumerate(self.steps):
            self.put(step, "ids", self.read("token_ids")[a:b].astype(np.int64)[None])
            self.put(step, "pos", np.arange(a, b, dtype=np.int64))
            for name in ("image_mask", "token_types"):
                if name in self.file:
                    self.put(step, name, self.read(name)[a:b])
            for path in ("embed", "final/h", "final/norm", "dspark/main", "dspark/tap"):
                self.put(step, path.replace("/", "."), bf16(self.read(path)[a:b]))
            self.split(step, "lm_head", self.read("logits")[a:b], 1)
            for stage in range(self.config["num_nextn_predict_layers"]):
                codes, scales = fp8(self.read(f"dspark/ctx_kv/{stage}")[a:b])
                self.put(step, f"draft.{stage}.ctx", codes)
                self.put(step, f"draft.{stage}.ctx.scale", scales)

    def drafts(self):
        last = len(self.steps) - 1
        for path in ("h", "markov_embed"):
            self.put(last, f"draft.{path}", bf16(self.read(f"dspark/{path}")))
        for path in ("base_logits", "draft_logits", "draft_ids", "confidence"):
            self.put(last, f"draft.{path}", self.read(f"dspark/{path}"))
        self.put(last, "draft.slots", self.read("dspark/ring_positions"))

        def keep(path, item):
            if isinstance(item, h5py.Dataset) and not path.endswith("_margin"):
                self.put(last, "stage." + path.replace("/", "."), item[()])

        for stage in range(self.config["num_nextn_predict_layers"]):
            self.put(last, f"draft.{stage}.ring", self.read(f"dspark/ring_kv/{stage}"))
            group = self.file.get(f"dspark/stages/{stage}", {})
            for path in walk(group):
                keep(f"{stage}/{path}", group[path])

    def export(self):
        for i in range(self.config["num_hidden_layers"]):
            self.layer(i)
        self.globals()
        if "dspark/h" in self.file:
            self.drafts()
        return self


def walk(group, prefix=""):
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from walk(item, f"{prefix}{name}/")
        else:
            yield prefix + name


def window(e, step, new, x):
    codes, scales = fp8(x)
    e.put(step, new + "window", codes)
    e.put(step, new + "window.scale", scales)


TOKEN_TAPS = {
    "in": lambda e, s, n, x: e.put(s, n + "input", bf16(x[None])),
    "premix": lambda e, s, n, x: e.put(s, n + "premix", x),
    "engram/rows": lambda e, s, n, x: e.put(s, n + "ngram.rows", x),
    "engram/emb": lambda e, s, n, x: e.put(s, n + "ngram.emb", bf16(x.reshape(len(x), -1, 32))),
    "engram/kv": lambda e, s, n, x: e.put(s, n + "ngram.kv", bf16(x)),
    "engram/gate": lambda e, s, n, x: e.put(s, n + "ngram.gate", x),
    "engram/out": lambda e, s, n, x: e.put(s, n + "ngram.out", bf16(x)),
    "attn/u": lambda e, s, n, x: e.put(s, n + "attn.input", bf16(x)),
    "attn/q_latent": lambda e, s, n, x: e.put(s, n + "q_latent", bf16(x)),
    "attn/q": lambda e, s, n, x: e.split(s, n + "q", bf16(halves(x, e.rope).transpose(1, 0, 2)[None]), 1),
    "attn/kv_window": window,
    "attn/index_q": lambda e, s, n, x: e.put(s, n + "index.q", bf16(x.reshape(len(x), -1))),
    "attn/index_w": lambda e, s, n, x: e.put(s, n + "index.w", bf16(x)),
    "attn/o": lambda e, s, n, x: e.split(s, n + "o", bf16(x), 1),
    "attn/y": lambda e, s, n, x: e.partial(s, n + "y", x),
    "mid": lambda e, s, n, x: e.put(s, n + "mid", bf16(x)),
    "ffn/u": lambda e, s, n, x: e.split(s, n + "moe.input", bf16(x), 1),
    "ffn/router_scores": lambda e, s, n, x: e.put(s, n + "moe.scores", x.astype(np.float64)),
    "ffn/y": lambda e, s, n, x: e.put(s, n + "moe.output", bf16(x)),
    "out": lambda e, s, n, x: e.put(s, n + "output", bf16(x[None])),
}


# ---- files ------------------------------------------------------------------------------------------------------

def save_npz(path, tensors):
    np.savez(path, **{f"{k}:{v.form}" if isinstance(v, Bits) else k: v.array if isinstance(v, Bits) else v
                      for k, v in tensors.items()})


CODES = {"bf16": "BF16", "e4m3": "F8_E4M3", "e8m0": "F8_E8M0", "e2m1": "F4", "bool": "BOOL", "uint8": "U8",
         "int32": "I32", "int64": "I64", "float32": "F32", "float64": "F64"}


def save_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, value in tensors.items():
        array, form = (value.array, value.form) if isinstance(value, Bits) else (value, value.dtype.name)
        shape = list(array.shape)
        shape[-1:] = [2 * s if form == "e2m1" else s for s in shape[-1:]]
        begin = len(data)
        data += np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": CODES[form], "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def save_torch(path, tensors):
    import torch
    types = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e8m0": None, "e2m1": None}

    def tensor(v):
        if not isinstance(v, Bits):
            return torch.from_numpy(np.ascontiguousarray(v))
        bits = torch.from_numpy(v.array.view(f"i{v.array.itemsize}"))
        return bits.view(types[v.form]) if types[v.form] else bits.view(torch.uint8)

    torch.save({k: tensor(v) for k, v in tensors.items()}, path)


SAVERS = {"npz": save_npz, "safetensors": save_safetensors, "pt": save_torch}


def save(engine, folder, kind):
    for step, ranks in enumerate(engine.files):
        os.makedirs(os.path.join(folder, f"step{step}"))
        for rank, tensors in enumerate(ranks):
            SAVERS[kind](os.path.join(folder, f"step{step}", f"rank{rank}.{kind}"), tensors)
