"""A config.json of four layers with the released geometry of attention, indexer, compressor and window: window
only, ratio 2, ratio 1 with the candidate pool, ratio 1 restricted to it. Experts are few and narrow: they do not
look at other rows. usage: long_config.py MINI/config.json >config.json (the mini model's tokenizer goes with it)"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    config = json.load(f)
text = config["text_config"]
text.update(
    hidden_size=5120, moe_intermediate_size=256, num_hidden_layers=4, num_attention_heads=64, head_dim=512,
    qk_rope_head_dim=64, q_lora_rank=1280, o_lora_rank=1024, o_groups=8, swiglu_limit=10.0,
    sliding_window=128, compress_ratios=[0, 2, 1, 1], kv_source_layer_ids=[1, 2],
    index_source_layer_ids=[1, 2, 3], index_n_heads=32, index_head_dim=128, index_topk=512,
    candidate_source_layer_id=2, candidate_topk_blocks=2048, candidate_block_size=8,
    engram_layer_ids=[1], engram_num_embeddings=text["engram_num_embeddings"][:1],
    num_experts_per_tok=2, num_nextn_predict_layers=0, dspark_target_layer_ids=[],
    max_position_embeddings=1048576,
)
text["rope_scaling"].update(factor=16, original_max_position_embeddings=65536)
json.dump(config, sys.stdout, indent=1)
