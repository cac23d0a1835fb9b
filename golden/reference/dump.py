"""Dump files of schema dsv41-dump-1: writer, reader and tap table (dump-schema.md).

The bytes of a written file depend on its content only: fixed creation order, no time stamps, no
machine names, contiguous or gzip + shuffle storage.
"""

import re

import h5py
import numpy as np

from checkpoint import reference_digest
from model import Inputs

SCHEMA = "dsv41-dump-1"
PRODUCER = "golden/reference (NumPy, written from architecture.md)"
BACKEND = "numpy-reference"

# Tap name without its layer or stage prefix -> source_dtype; execution order within a layer (section 3).
LAYER_TAPS = {
    "in": "bf16", "premix": "f32", "engram/rows": "int", "engram/emb": "e4m3-dequantized",
    "engram/kv": "bf16", "engram/gate": "f32", "engram/out": "bf16", "attn/pre": "f32",
    "attn/post": "f32", "attn/comb": "f32", "attn/u": "bf16", "attn/q_latent": "bf16", "attn/q": "bf16",
    "attn/kv_window": "e4m3-dequantized", "attn/kv": "e4m3-dequantized", "attn/latent": "bf16",
    "attn/kv_main": "e2m1-dequantized", "attn/index_k": "e2m1-dequantized",
    "attn/index_q": "e2m1-dequantized", "attn/index_w": "bf16", "attn/index_scores": "bf16",
    "attn/pool": "bool", "attn/pool_margin": "f32", "attn/topk": "int", "attn/topk_margin": "f32",
    "attn/o": "bf16", "attn/y": "bf16", "mid": "bf16", "ffn/pre": "f32", "ffn/post": "f32",
    "ffn/comb": "f32", "ffn/u": "bf16", "ffn/router_scores": "f32", "ffn/expert_ids": "int",
    "ffn/expert_weights": "f32", "ffn/expert_margin": "f32", "ffn/y": "bf16", "out": "bf16",
}
OTHER_TAPS = {
    "embed": "bf16", "final/h": "bf16", "final/norm": "bf16", "logits": "f32", "logit_margin": "f32",
    "dspark/tap": "bf16", "dspark/main": "bf16", "dspark/ctx_kv": "e4m3-dequantized",
    "dspark/ring_kv": "e4m3-dequantized", "dspark/h": "bf16", "dspark/base_logits": "f32",
    "dspark/draft_logits": "f32", "dspark/markov_embed": "bf16", "dspark/draft_ids": "int",
    "dspark/confidence": "f32", "draft_all/anchor_ids": "int", "draft_all/draft_ids": "int",
    "draft_all/confidence": "f32", "draft_all/draft_logits": "f32",
}
TOKEN_ROW_TAPS = ("embed", "final/h", "final/norm", "dspark/tap", "dspark/main", "dspark/ctx_kv")
ENTRY_TAPS = ("attn/latent", "attn/kv_main", "attn/index_k")
# What `--taps small` keeps per layer: streams, selections with their margins, hash rows and gates.
SMALL_TAPS = ("in", "premix", "out", "engram/rows", "engram/gate", "attn/pool", "attn/pool_margin",
              "attn/topk", "attn/topk_margin", "ffn/expert_ids", "ffn/expert_margin", "ffn/pre")


def split_path(path):
    """(prefix, tap name): 'layers/03/attn/u' -> ('layers/03/', 'attn/u')."""
    match = re.match(r"(layers/\d\d/|dspark/stages/\d+/)(.*)", path)
    if match:
        return match.groups()
    stage = re.match(r"(dspark/(?:ctx_kv|ring_kv))/\d+$", path)
    return "", stage[1] if stage else path


def source_dtype(path):
    prefix, name = split_path(path)
    return LAYER_TAPS[name] if prefix else OTHER_TAPS[name]


def rows_label(path, cfg):
    """Dataset that labels the first axis (section 2)."""
    prefix, name = split_path(path)
    if name in ENTRY_TAPS:
        return f"/entries_r{cfg.ratios[int(prefix[7:9])]}"
    if prefix.startswith("layers") or name in TOKEN_ROW_TAPS:
        return "/positions"
    for start, label in (("logit", "/logit_positions"), ("dspark/ring_kv", "/dspark/ring_positions"),
                         ("draft_all/draft_logits", "/draft_all/logit_anchor_positions"),
                         ("draft_all/", "/draft_all/anchor_positions"), ("dspark/", "/dspark/draft_positions")):
        if path.startswith(start):
            return label
    raise KeyError(path)


class Writer:
    """One file. Small or one-dimensional data are contiguous, the rest one gzip chunk."""

    def __init__(self, path, attributes):
        self.file = h5py.File(path, "w", libver="earliest")
        for name, value in attributes.items():
            self.attribute(self.file, name, value)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()

    @staticmethod
    def attribute(target, name, value):
        target.attrs[name] = np.bytes_(value.encode("ascii")) if isinstance(value, str) else np.int32(value)

    def labels(self, path, values, dtype=np.int32):
        self.file.create_dataset(path, data=np.asarray(values, dtype), track_times=False)

    def tap(self, path, value, rows, dtype):
        stored = {"int": np.int32, "bool": np.uint8}.get(dtype, np.float32)
        if path.endswith("engram/rows"):
            stored = np.int64
        value = np.ascontiguousarray(value, stored)
        packed = value.nbytes >= 4096 and {"chunks": value.shape, "compression": "gzip",
                                           "compression_opts": 9, "shuffle": True}
        data = self.file.create_dataset(path, data=value, track_times=False, **(packed or {}))
        self.attribute(data, "rows", rows)
        self.attribute(data, "source_dtype", dtype)
        return data

    def link(self, path, target):
        self.file[path] = self.file[target]


def ascii_json(text):
    """config.json as an ASCII attribute."""
    return text.encode("ascii", "backslashreplace").decode()


def write_inputs(out, m, inputs):
    """Axes and inputs of section 2."""
    n = len(inputs)
    out.labels("token_ids", inputs.token_ids)
    out.labels("positions", np.arange(n))
    for ratio in sorted({r for r in m.cfg.ratios if r}):
        out.labels(f"entries_r{ratio}", np.arange(n // ratio))
    if inputs.has_images:
        out.labels("image_mask", inputs.image_mask, np.uint8)
        if inputs.token_types is not None:
            out.labels("token_types", inputs.token_types)


def write(path, m, inputs, taps, anchor, small, notes):
    """Everything that `taps` holds. What the engine's plan is to its dumps, these sources are here."""
    attributes = {"schema": SCHEMA, "producer": PRODUCER, "model": m.cfg.name,
                  "config_json": ascii_json(m.cfg.text), "notes": notes, "mode": "exact",
                  "backend": BACKEND, "variants": m.ar.name,
                  "checkpoint_digest": m.ckpt.digest(), "plan_digest": reference_digest(), "prompt_length": len(inputs)}
    with Writer(path, attributes) as out:
        write_inputs(out, m, inputs)
        out.labels("logit_positions", np.arange(len(inputs) - len(taps["logits"]), len(inputs)))
        out.labels("dspark/ring_positions", taps["dspark/ring_positions"])
        out.labels("dspark/draft_positions", len(inputs) + np.arange(m.cfg.draft_rows))
        for name in ("anchor_positions", "logit_anchor_positions"):
            if f"draft_all/{name}" in taps:
                out.labels(f"draft_all/{name}", taps[f"draft_all/{name}"])
        for tap, value in taps.items():
            if tap.endswith("_positions") or small and not kept_in_small(tap):
                continue
            linked = linked_tap(tap)
            if linked:
                out.link(tap, linked)
                continue
            data = out.tap(tap, value, rows_label(tap, m.cfg), source_dtype(tap))
            if tap == "logits":  # row t of this pass is the last row of a prefill of t+1 tokens
                out.attribute(data, "oneshot_bit_equal", 1)
            if tap == "dspark/draft_ids":
                out.attribute(data, "anchor_id", anchor)


def kept_in_small(path):
    prefix, name = split_path(path)
    return name in SMALL_TAPS if prefix.startswith("layers") else not prefix


def linked_tap(path):
    """`in` and `premix` equal results of the layer before: one dataset, two names (section 1)."""
    match = re.match(r"(layers/|dspark/stages/)(\d+)/(in|premix)$", path)
    if not match or int(match[2]) == 0:
        return None
    before = f"{int(match[2]) - 1:0{len(match[2])}}"
    return f"{match[1]}{before}/" + {"in": "out", "premix": "ffn/pre"}[match[3]]


class Golden:
    """A dump to read: taps in the arithmetic's float type, inputs of layers and stages."""

    def __init__(self, path, dtype=np.float64):
        self.file = h5py.File(path, "r")
        schema = self.file.attrs["schema"]
        if (schema.decode() if isinstance(schema, bytes) else schema) != SCHEMA:
            raise ValueError(f"{path}: schema {schema!r}, {SCHEMA} wanted")
        self.dtype = dtype
        self.length = len(self.file["token_ids"])
        first = "layers/00/in" if "layers/00/in" in self.file else "token_ids"
        self.positions = self.labels(first) if first != "token_ids" else np.arange(self.length)

    def __contains__(self, path):
        return path in self.file

    def labels(self, path):
        """Content of the dataset that labels the rows of a tap."""
        return self.file[self.rows_name(path)][()].astype(np.int64)

    def rows_name(self, path):
        name = self.file[path].attrs["rows"]
        return name.decode() if isinstance(name, bytes) else name

    def paths(self):
        """All tap paths of the file, hard links included."""
        found = []

        def walk(group, prefix):
            for name, item in group.items():
                if isinstance(item, h5py.Group):
                    walk(item, f"{prefix}{name}/")
                elif "rows" in item.attrs:
                    found.append(prefix + name)

        walk(self.file, "")
        return found

    def raw(self, path):
        return self.file[path][()]

    def rows(self, path):
        """A tap restricted to the rows that this file injects, where it holds more token rows."""
        value = self.raw(path)
        if self.rows_name(path) == "/positions" and len(value) != len(self.positions):
            value = value[self.positions]
        return value

    def tap(self, path, default=None):
        return self.rows(path).astype(self.dtype) if path in self.file else default

    def attention_tap(self, name, layer, default):
        """What other layers read: caches whole, pool and list for the injected rows."""
        path = f"layers/{layer:02}/attn/{name}"
        if path not in self.file:
            return default
        if name in ("topk", "pool"):
            return self.rows(path).astype(bool if name == "pool" else np.int64)
        return self.raw(path).astype(self.dtype)

    def layer_input(self, layer):
        before = f"layers/{layer - 1:02}/"
        x = self.tap(f"layers/{layer:02}/in")
        p = self.tap(f"layers/{layer:02}/premix")
        return self.tap(before + "out") if x is None else x, self.tap(before + "ffn/pre") if p is None else p

    def stage_input(self, stage, x, p):
        prefix = f"dspark/stages/{stage}/"
        if prefix + "in" not in self.file:
            return x, p
        return self.raw(prefix + "in").astype(self.dtype), self.raw(prefix + "premix").astype(self.dtype)

    def context(self, stage, own):
        """Context KV of positions 0..N-1. The ring supplies them if the file trims the rows."""
        if len(self.positions) == self.length:
            return self.tap(f"dspark/ctx_kv/{stage}", own)
        held, ring = self.raw("dspark/ring_positions"), self.raw(f"dspark/ring_kv/{stage}")
        full = np.zeros((self.length, ring.shape[1]), self.dtype)
        full[held[held >= 0]] = ring[held >= 0]
        return full

    def inputs(self):
        """Ids, and for image prompts mask, types and embedded rows (section 2)."""
        mask = self.raw("image_mask") if "image_mask" in self.file else None
        embed = None
        if mask is not None and "embed" in self.file and len(self.file["embed"]) == self.length:
            embed = self.raw("embed")
        types = self.raw("token_types") if "token_types" in self.file else None
        return Inputs(self.raw("token_ids"), mask, embed, types)
