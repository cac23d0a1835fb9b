"""A module tree with the names and the calling order of Transformers' V4.1 port that gives out golden values.

What is tested with it is the script in IMPORT.md and its map, not the port: every module answers with the rows of the
golden dump that the port would have computed. Shapes, argument positions and caches are those read in the port.
"""

import h5py
import numpy as np
import torch
from torch import nn


def eager_attention_forward(module, query, key, value, attention_mask, scaling, **kwargs):
    """The script replaces this function. Its result would be rotated back; nothing looks at it here."""
    return torch.zeros(1, query.shape[2], query.shape[1], query.shape[3], dtype=query.dtype), None


def _fake_quant_fp4_block(x, block_size, e4m3_scales=False):
    return x  # golden values are on the grid already


class Source:
    """Golden rows of the chunk that is running."""

    def __init__(self, path):
        self.file = h5py.File(path, "r")
        self.begin = self.end = 0

    def has(self, path):
        return path in self.file

    def f32(self, path):
        return torch.from_numpy(self.file[path][self.begin:self.end])[None]

    def bf16(self, path):
        return self.f32(path).to(torch.bfloat16)

    def cache(self, path, entries):
        """A running cache [1, 1, entries, channels]."""
        return torch.from_numpy(self.file[path][:entries])[None, None].to(torch.bfloat16)


class Answer(nn.Module):
    """A module whose result is one tap."""

    def __init__(self, source, path, shape=None, dtype="bf16", flat=False):
        super().__init__()
        self.source, self.path, self.shape, self.dtype, self.flat = source, path, shape, dtype, flat

    def forward(self, x, *args):
        value = getattr(self.source, self.dtype)(self.path)
        if self.shape:
            value = value.reshape(*value.shape[:2], *self.shape)
        return value[0] if self.flat else value


class Engram(nn.Module):
    def __init__(self, source, layer, head_dim):
        super().__init__()
        self.source, self.layer = source, layer
        self.embed = Answer(source, f"{layer}/engram/emb", (-1, head_dim))
        self.wkv = Answer(source, f"{layer}/engram/kv")

    def forward(self, hidden_streams, hash_ids, token_mask):
        self.wkv(self.embed(hash_ids).flatten(-2))
        return self.source.bf16(f"{self.layer}/engram/out")


class Router(nn.Module):
    def __init__(self, source, layer):
        super().__init__()
        self.source, self.layer = source, layer
        self.score_fn = Answer(source, f"{layer}/ffn/router_scores", dtype="f32", flat=True)

    def forward(self, hidden_states, image_mask=None):
        self.score_fn(hidden_states)
        weights = self.source.f32(f"{self.layer}/ffn/expert_weights")[0]
        order = weights.argsort(-1, descending=True)
        ids = torch.from_numpy(self.source.file[f"{self.layer}/ffn/expert_ids"][self.source.begin:self.source.end])
        return weights.gather(1, order), ids.long().gather(1, order)


class Ffn(nn.Module):
    def __init__(self, source, layer):
        super().__init__()
        self.source, self.layer, self.gate = source, layer, Router(source, layer)

    def forward(self, hidden_states):
        self.gate(hidden_states, None)
        return self.source.bf16(f"{self.layer}/ffn/y")


class Compressor(nn.Module):
    """Latents of the groups that this call completes, or None."""

    def __init__(self, source, layer, ratio):
        super().__init__()
        self.source, self.layer, self.ratio = source, layer, ratio

    def forward(self, hidden_states, cache_layer):
        first, last = self.source.begin // self.ratio, self.source.end // self.ratio
        latent = torch.from_numpy(self.source.file[f"{self.layer}/attn/latent"][first:last])[None].to(torch.bfloat16)
        return (latent if last > first else None), first * self.ratio


class Indexer(nn.Module):
    def __init__(self, source, layer, ratio, owns_k, is_candidate_source):
        super().__init__()
        self.source, self.layer, self.ratio = source, layer, ratio
        self.owns_k, self.is_candidate_source = owns_k, is_candidate_source

    def forward(self, hidden_states, q_residual, latent, first, position_ids, cache_layer, shared):
        seen, rows = self.source.end // self.ratio, self.source.end - self.source.begin
        if self.owns_k:
            if latent is not None:
                _fake_quant_fp4_block(self.source.cache(f"{self.layer}/attn/index_k", seen)[:, 0], block_size=32)
            shared["index_k"] = self.source.cache(f"{self.layer}/attn/index_k", seen)
        _fake_quant_fp4_block(self.source.bf16(f"{self.layer}/attn/index_q"), block_size=32)
        if self.is_candidate_source:
            pool = self.source.file[f"{self.layer}/attn/pool"][self.source.begin:self.source.end, :seen]
            shared["candidates"] = torch.from_numpy(pool.astype(bool))[None]
        bias = np.full((1, 1, rows, seen), -np.inf, np.float32)
        for row, ids in enumerate(self.source.file[f"{self.layer}/attn/topk"][self.source.begin:self.source.end]):
            bias[0, 0, row, ids[ids >= 0]] = 0
        shared["topk_bias"] = torch.from_numpy(bias)


class Attention(nn.Module):
    def __init__(self, source, c, i):
        super().__init__()
        self.source, self.layer, self.window = source, f"layers/{i:02}", c["sliding_window"]
        self.layer_idx, self.compress_ratio, self.groups = i, c["compress_ratios"][i], c["o_groups"]
        self.q_norm = Answer(source, f"{self.layer}/attn/q_latent")
        self.wo_a = nn.Identity()
        kv, index = i in c["kv_source_layer_ids"], i in c["index_source_layer_ids"]
        self.compressor = Compressor(source, self.layer, self.compress_ratio) if kv else None
        self.indexer = Indexer(source, self.layer, self.compress_ratio, kv,
                               i == c["candidate_source_layer_id"]) if index else None

    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values, shared, **kwargs):
        a, b = self.source.begin, self.source.end
        residual = self.q_norm(hidden_states)
        query = self.source.bf16(f"{self.layer}/attn/q").transpose(1, 2)
        window = self.source.file[f"{self.layer}/attn/kv_window"][max(0, a - self.window + 1):b]
        key = torch.from_numpy(window)[None, None].to(torch.bfloat16)
        if self.compress_ratio:
            latent, first = self.compressor(hidden_states, None) if self.compressor else (None, 0)
            if self.indexer:
                self.indexer(hidden_states, residual, latent, first, kwargs["position_ids"], None, shared)
            if self.compressor:
                shared["compress_kv"] = self.source.cache(f"{self.layer}/attn/kv_main", b // self.compress_ratio)
            key = torch.cat([key, shared["compress_kv"]], 2)
        eager_attention_forward(self, query, key, key, attention_mask, scaling=1.0, dropout=0.0, **kwargs)
        self.wo_a(self.source.bf16(f"{self.layer}/attn/o").reshape(1, b - a, self.groups, -1))
        return self.source.bf16(f"{self.layer}/attn/y"), None


class Layer(nn.Module):
    def __init__(self, source, c, i):
        super().__init__()
        self.source, self.layer, self.calls = source, f"layers/{i:02}", 0
        self.attn, self.ffn = Attention(source, c, i), Ffn(source, self.layer)
        self.attn_norm = Answer(source, f"{self.layer}/attn/u")
        self.ffn_norm = Answer(source, f"{self.layer}/ffn/u")
        self.engram = Engram(source, self.layer, c["engram_head_dim"]) if i in c["engram_layer_ids"] else None

    def hc_mixes(self, hidden_streams, half):
        return tuple(self.source.f32(f"{self.layer}/{half}/{part}") for part in ("pre", "post", "comb"))

    @staticmethod
    def hc_expand(x, residual, post, result):
        return result

    def forward(self, hidden_streams, pre_mix, hash_ids, token_mask, shared, **kwargs):
        if self.engram is not None:
            hidden_streams = self.engram(hidden_streams, hash_ids, token_mask)
        pre, post, _ = self.hc_mixes(hidden_streams, "attn")
        y, _ = self.attn(self.attn_norm(hidden_streams), shared=shared, **kwargs)
        hidden_streams = self.hc_expand(y, hidden_streams, post, self.source.bf16(f"{self.layer}/mid"))
        pre, post, _ = self.hc_mixes(hidden_streams, "ffn")
        y = self.ffn(self.ffn_norm(hidden_streams))
        return self.hc_expand(y, hidden_streams, post, self.source.bf16(f"{self.layer}/out")), pre


class Backbone(nn.Module):
    def __init__(self, source, c):
        super().__init__()
        self.source = source
        self.embed = Answer(source, "embed")
        self.layers = nn.ModuleList([Layer(source, c, i) for i in range(c["num_hidden_layers"])])
        self.norm = Answer(source, "final/norm")

    def forward(self, input_ids, position_ids):
        self.embed(input_ids)
        streams, pre, shared = self.source.bf16("layers/00/in"), self.source.f32("layers/00/premix"), {}
        for layer in self.layers:
            hashes = layer.engram and self.source.file[f"{layer.layer}/engram/rows"][self.source.begin:self.source.end]
            streams, pre = layer(streams, pre, torch.from_numpy(hashes)[None] if layer.engram else None, None, shared,
                                 position_embeddings={}, position_ids=position_ids, attention_mask=None,
                                 past_key_values=None)
        return self.norm(self.source.bf16("final/h"))


class Result:
    past_key_values = None


class Replay(nn.Module):
    """Called as the port is; the positions tell which golden rows are asked for."""

    def __init__(self, golden, config):
        super().__init__()
        self.source = Source(golden)
        self.model = Backbone(self.source, config)
        self.lm_head = Answer(self.source, "logits", dtype="f32")
        self.anchor = nn.Parameter(torch.zeros(1))

    def forward(self, input_ids, position_ids, past_key_values=None, use_cache=None):
        assert use_cache
        self.source.begin, self.source.end = int(position_ids[0, 0]), int(position_ids[0, -1]) + 1
        self.lm_head(self.model(input_ids, position_ids))
        return Result()
