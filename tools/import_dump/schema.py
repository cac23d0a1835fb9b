"""Taps of dump-schema.md sections 3 to 5 as a table: shape, stored type, layers that have them, labels of rows."""

import json
import os
import re
from types import SimpleNamespace

from . import Refused

SOURCE_DTYPES = ("bf16", "f32", "e4m3-dequantized", "e2m1-dequantized", "int", "bool")

# name: (shape, source_dtype, layers). Letters of a shape are those of Model.sizes; the first one labels the rows.
ATTENTION = {
    "attn/pre": ("N M", "f32", "all"), "attn/post": ("N M", "f32", "all"), "attn/comb": ("N M M", "f32", "all"),
    "attn/u": ("N D", "bf16", "all"), "attn/q_latent": ("N QL", "bf16", "all"), "attn/q": ("N H HD", "bf16", "all"),
}
FFN = {
    "attn/o": ("N H HD", "bf16", "all"), "attn/y": ("N D", "bf16", "all"), "mid": ("N M D", "bf16", "all"),
    "ffn/pre": ("N M", "f32", "all"), "ffn/post": ("N M", "f32", "all"), "ffn/comb": ("N M M", "f32", "all"),
    "ffn/u": ("N D", "bf16", "all"), "ffn/router_scores": ("N X", "f32", "all"),
    "ffn/expert_ids": ("N XK", "int", "all"), "ffn/expert_weights": ("N XK", "f32", "all"),
    "ffn/y": ("N D", "bf16", "all"), "out": ("N M D", "bf16", "all"),
}
LAYER = {
    "in": ("N M D", "bf16", "all"), "premix": ("N M", "f32", "all"),
    "engram/rows": ("N C", "int", "engram"), "engram/emb": ("N CE", "e4m3-dequantized", "engram"),
    "engram/kv": ("N D5", "bf16", "engram"), "engram/gate": ("N M", "f32", "engram"),
    "engram/out": ("N M D", "bf16", "engram"), **ATTENTION,
    "attn/kv_window": ("N HD", "e4m3-dequantized", "all"), "attn/latent": ("E HD", "bf16", "kv"),
    "attn/kv_main": ("E HD", "e2m1-dequantized", "kv"), "attn/index_k": ("E ID", "e2m1-dequantized", "kv"),
    "attn/index_q": ("N IH ID", "e2m1-dequantized", "index"), "attn/index_w": ("N IH", "bf16", "index"),
    "attn/index_scores": ("N E", "bf16", "index"), "attn/pool": ("N E", "bool", "pool"),
    "attn/topk": ("N K", "int", "index"), **FFN,
}
STAGE = {
    name: (shape.replace("N ", "B "), dtype, "all")
    for name, (shape, dtype, _) in {
        "in": LAYER["in"], "premix": LAYER["premix"], **ATTENTION,
        "attn/kv": ("N HD", "e4m3-dequantized", "all"), **FFN}.items()
}
PLAIN = {
    "embed": ("N D", "bf16"), "final/h": ("N D", "bf16"), "final/norm": ("N D", "bf16"),
    "logits": ("R V", "f32"), "logits_oneshot": ("N V", "f32"), "dspark/tap": ("N TD", "bf16"),
    "dspark/main": ("N D", "bf16"), "dspark/h": ("B D", "bf16"), "dspark/base_logits": ("B V", "f32"),
    "dspark/draft_logits": ("B V", "f32"), "dspark/markov_embed": ("B MR", "bf16"), "dspark/draft_ids": ("B", "int"),
    "dspark/confidence": ("B", "f32"),
}
PER_STAGE = {"dspark/ctx_kv": ("N HD", "e4m3-dequantized"), "dspark/ring_kv": ("W HD", "e4m3-dequantized")}
# Inputs that a dump may carry: dataset -> stored as.
INPUTS = {"token_ids": "<i4", "positions": "<i4", "image_mask": "|u1", "token_types": "<i4",
          "dspark/ring_positions": "<i4", "logit_positions": "<i4"}


class Model:
    """Dimensions and layer kinds from a config.json (architecture.md sections 1 and 2.1)."""

    def __init__(self, path):
        if os.path.isdir(path):
            path = os.path.join(path, "config.json")
        try:
            with open(path, encoding="utf-8") as f:
                self.text = f.read(1 << 20)
            raw = json.loads(self.text)
            flat = raw.get("text_config", raw)
            self.name = os.path.basename(os.path.dirname(os.path.abspath(path)))
            self.read(SimpleNamespace(**flat), flat)
        except OSError as error:
            raise Refused(3, f"{path}: {error.strerror}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise Refused(3, f"{path}: not a config.json of this model: {error}") from None

    def read(self, c, flat):
        self.n_layers, self.n_stages = c.num_hidden_layers, flat.get("num_nextn_predict_layers", 0)
        self.ratios = c.compress_ratios
        if len(self.ratios) < self.n_layers:
            raise ValueError(f"compress_ratios has {len(self.ratios)} entries for {self.n_layers} layers")
        self.layers = {"all": range(self.n_layers), "engram": c.engram_layer_ids, "kv": c.kv_source_layer_ids,
                       "index": c.index_source_layer_ids, "pool": [c.candidate_source_layer_id]}
        self.index_topk = c.index_topk
        columns = (c.engram_max_ngram_size - 1) * c.engram_n_heads
        self.sizes = {
            "D": c.hidden_size, "D5": 5 * c.hidden_size, "M": c.hc_mult, "H": c.num_attention_heads, "HD": c.head_dim,
            "QL": c.q_lora_rank, "IH": c.index_n_heads, "ID": c.index_head_dim, "X": c.n_routed_experts,
            "XK": c.num_experts_per_tok, "V": c.vocab_size, "C": columns, "CE": columns * c.engram_head_dim,
            "EHD": c.engram_head_dim, "ROPE": c.qk_rope_head_dim, "W": c.sliding_window, "G": c.o_groups,
            "B": flat.get("dspark_block_size", 0), "MR": flat.get("dspark_markov_rank", 0),
            "TD": len(flat.get("dspark_target_layer_ids", [])) * c.hidden_size,
        }
        self.stage_sizes = {"X": flat.get("dspark_n_routed_experts", 0),
                            "XK": flat.get("dspark_num_experts_per_tok", 0)}
        bad = [k for k, v in {**self.sizes, **self.stage_sizes}.items() if type(v) is not int or v < 0]
        if bad:
            raise ValueError(f"sizes that are no counts: {', '.join(bad)}")

    def tap(self, path):
        """What the schema says of one path, or None: shape letters, source_dtype, layer (None), draft stage."""
        found = re.fullmatch(r"layers/(\d\d)/(.+)", path)
        if found:
            layer, entry = int(found[1]), LAYER.get(found[2])
            good = entry and layer in self.layers[entry[2]] and layer < self.n_layers
            return SimpleNamespace(shape=entry[0].split(), dtype=entry[1], layer=layer, stage=False) if good else None
        found = re.fullmatch(r"dspark/stages/(\d+)/(.+)", path)
        if found:
            entry, good = STAGE.get(found[2]), int(found[1]) < self.n_stages
        else:
            found = re.fullmatch(r"(dspark/\w+)/(\d+)", path)
            entry = PER_STAGE.get(found[1]) if found else PLAIN.get(path)
            good = not found or int(found[2]) < self.n_stages
        if not entry or not good:
            return None
        return SimpleNamespace(shape=entry[0].split(), dtype=entry[1], layer=None, stage="stages" in path)

    @staticmethod
    def knows(template):
        """Is a template a path of the schema, in whatever model?"""
        found = re.fullmatch(r"(layers|dspark/stages)/(?:\{(?:LL|L|S)(?:[+-]\d+)?\}|\d+)/(.+)", template)
        if found:
            return found[2] in (LAYER if found[1] == "layers" else STAGE)
        found = re.fullmatch(r"(dspark/\w+)/(?:\{S(?:[+-]\d+)?\}|\d+)", template)
        return found[1] in PER_STAGE if found else template in PLAIN

    def sizes_at(self, tap, n):
        """Letter -> size at this tap, for a run of n tokens."""
        sizes = {**self.sizes, "N": n}
        if tap.stage:
            sizes.update(self.stage_sizes)
        if tap.layer is not None and self.ratios[tap.layer]:
            sizes["E"] = n // self.ratios[tap.layer]
            sizes["K"] = min(self.index_topk, sizes["E"])
        return sizes

    def instances(self, template):
        """Paths that a template such as layers/{LL}/attn/u stands for in this model."""
        if "{LL" in template or "{L" in template:
            values = [{"L": i} for i in self.layers["all"]]
        elif "{S" in template:
            values = [{"S": i} for i in range(self.n_stages)]
        else:
            values = [{}]
        paths = (expand(template, v) for v in values)
        return [p for p in paths if p and self.tap(p)]


def expand(template, values):
    """Fills {L}, {LL} (two digits), {S}, each with an optional +k or -k. None when a number falls below 0."""
    below = False

    def fill(match):
        nonlocal below
        number = values[match[1][0]] + int(match[2] or 0)
        below |= number < 0
        return f"{number:0{len(match[1])}}"

    try:
        text = re.sub(r"\{(LL|L|S)([+-]\d+)?\}", fill, template)
    except KeyError as error:
        raise Refused(2, f"map: {template}: the source pattern has no {{{error.args[0]}}}") from None
    return None if below else text
