"""config.json of the released form as one flat record: architecture.md section 1 and 2.1."""

import json
import os
from types import SimpleNamespace

# Attribute of the record -> key of text_config (section 1, first table).
TEXT_KEYS = {
    "vocab": "vocab_size", "dim": "hidden_size", "inter": "moe_intermediate_size",
    "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "head_dim": "head_dim",
    "rope_dim": "qk_rope_head_dim", "q_lora": "q_lora_rank", "o_lora": "o_lora_rank",
    "o_groups": "o_groups", "swiglu_limit": "swiglu_limit", "eps": "rms_norm_eps",
    "rope_theta": "rope_theta", "compress_rope_theta": "compress_rope_theta",
    "n_experts": "n_routed_experts", "top_experts": "num_experts_per_tok",
    "route_scale": "routed_scaling_factor", "window": "sliding_window", "ratios": "compress_ratios",
    "kv_sources": "kv_source_layer_ids", "index_sources": "index_source_layer_ids",
    "index_heads": "index_n_heads", "index_dim": "index_head_dim", "index_topk": "index_topk",
    "pool_layer": "candidate_source_layer_id", "pool_blocks": "candidate_topk_blocks",
    "pool_block": "candidate_block_size", "hc": "hc_mult", "hc_iters": "hc_sinkhorn_iters",
    "hc_eps": "hc_eps", "engram_layers": "engram_layer_ids", "engram_rows": "engram_num_embeddings",
    "engram_ngram": "engram_max_ngram_size", "engram_heads": "engram_n_heads",
    "engram_dim": "engram_head_dim", "engram_vocab": "engram_vocab_size",
    "engram_pad": "engram_pad_token_id", "engram_classes": "engram_compressed_vocab_size",
    "n_stages": "num_nextn_predict_layers", "draft_rows": "dspark_block_size",
    "noise_id": "dspark_noise_token_id", "target_layers": "dspark_target_layer_ids",
    "draft_experts": "dspark_n_routed_experts", "draft_top_experts": "dspark_num_experts_per_tok",
}


def load(model_dir):
    """The record, with the facts of section 1 checked: a wrong schedule fails here, not later."""
    with open(os.path.join(model_dir, "config.json"), encoding="utf-8") as f:
        text = f.read()
    raw = json.loads(text)
    flat = raw["text_config"]
    cfg = SimpleNamespace(**{name: flat[key] for name, key in TEXT_KEYS.items()})
    yarn = flat["rope_scaling"]
    cfg.yarn_factor, cfg.yarn_original = yarn["factor"], yarn["original_max_position_embeddings"]
    cfg.beta_fast, cfg.beta_slow = yarn["beta_fast"], yarn["beta_slow"]
    cfg.norm_topk = flat.get("norm_topk_prob", True)
    cfg.gate_temp = flat.get("gate_temp", 1.0)
    cfg.image_id = raw.get("image_token_id")
    cfg.bos_id = raw.get("bos_token_id", 0)
    cfg.text = text
    cfg.name = os.path.basename(os.path.normpath(model_dir))
    check(cfg, flat)
    return cfg


def check(cfg, flat):
    def need(condition, what):
        if not condition:
            raise ValueError(f"config.json: {what}")

    need(len(cfg.ratios) == cfg.n_layers + cfg.n_stages, "compress_ratios has the wrong length")
    need(not any(cfg.ratios[cfg.n_layers:]), "a draft stage has a compression ratio")
    need(set(cfg.kv_sources) <= set(cfg.index_sources), "a kv source is not an index source")
    need(all(cfg.ratios[s] > 0 for s in cfg.kv_sources), "a kv source has ratio 0")
    need(cfg.pool_layer in cfg.index_sources, "the candidate source is not an index source")
    need(cfg.index_topk <= cfg.pool_blocks * cfg.pool_block, "the pool is smaller than the top-k")
    need(flat["scoring_func"] == "sqrtsoftplus", "scoring_func is not sqrtsoftplus")
    need(flat["n_shared_experts"] == 1, "n_shared_experts is not 1")


def source_of(layer, sources):
    """kvsrc(l) and idxsrc(l) of section 2.1: the largest source not above l."""
    return max(s for s in sources if s <= layer)
