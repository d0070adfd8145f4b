"""What compare_transformers.py tries of networks that see both ways, by their embeddings: encoders, and decoders whose config.json says so."""
from variations_dense import FULL_FIRST, HEADS, MIXED, ROPES, rope, two_ropes

BOTH_WAYS = {"is_causal": False}
NO_KV = {"num_key_value_heads": "(removed)"}
PLAIN = rope()["rope_parameters"]
BERT_CASES = [{"hidden_act": "relu"}, {"hidden_act": "gelu_new"}, {"hidden_act": "silu"}, {"layer_norm_eps": 0.1}, {"type_vocab_size": 1}, {"type_vocab_size": 4},
              {"num_attention_heads": 3}, {"position_embedding_type": "relative_key"}]

T5 = {"class": "AutoModelForTextEncoding",
      "base": {**NO_KV, "hidden_size": "(removed)", "num_hidden_layers": "(removed)", "num_attention_heads": "(removed)", "intermediate_size": "(removed)",
               "max_position_embeddings": "(removed)", "d_model": 48, "num_layers": 3, "num_heads": 4, "d_ff": 64, "d_kv": 16, "eos_token_id": 1},
      "cases": [{"feed_forward_proj": "relu"}, {"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-silu"}, {"feed_forward_proj": "gelu"},
                {"feed_forward_proj": "gated-relu"}, {"layer_norm_epsilon": 0.1}, {"num_heads": 3}, {"d_kv": 10}, {"d_ff": 40}, {"num_decoder_layers": 5}, {"n_positions": 64},
                {"relative_attention_num_buckets": 8}, {"relative_attention_num_buckets": 4}, {"relative_attention_num_buckets": 13}, {"relative_attention_num_buckets": 2},
                {"relative_attention_max_distance": 16}, {"relative_attention_max_distance": 9}, {"relative_attention_max_distance": 8},
                {"relative_attention_max_distance": 5000}, {"tie_word_embeddings": False}],
      "edits": [({"feed_forward_proj": "gated-gelu"}, {"dense_act_fn": "gelu"}), ({"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-relu"}),
                ({}, {"d_model": "(removed)", "num_heads": "(removed)", "num_layers": "(removed)", "d_kv": "(removed)", "hidden_size": 48, "num_attention_heads": 4,
                      "num_hidden_layers": 3, "head_dim": 16})]}

FAMILIES = {
    "gemma3_text": {"class": "AutoModel", "base": {"use_bidirectional_attention": True, "sliding_window": 16, "head_dim": 12, "query_pre_attn_scalar": 12}, "cases": [
        {"sliding_window": 2}, {"sliding_window": 3}, {"sliding_window": 17}, {"sliding_window": 200}, {"layer_types": MIXED}, {"layer_types": FULL_FIRST},
        {"attention_bias": True}, {"query_pre_attn_scalar": 40}, *HEADS, two_ropes(rope("linear", factor=4.0)["rope_parameters"], PLAIN)]},
    "modernbert": {"class": "AutoModel", "base": {**NO_KV, "local_attention": 12, "cls_token_id": 1, "sep_token_id": 2}, "cases": [
        {"local_attention": 0}, {"local_attention": 1}, {"local_attention": 7}, {"local_attention": 300}, {"norm_bias": True}, {"attention_bias": True},
        {"mlp_bias": True}, {"hidden_activation": "silu"}, {"norm_eps": 0.1}, {"layer_types": MIXED}, {"layer_types": FULL_FIRST},
        {"global_attn_every_n_layers": 1}, {"global_attn_every_n_layers": 2}, two_ropes(rope(theta=500.0)["rope_parameters"], rope(theta=50.0)["rope_parameters"])],
        "edits": [({}, {"rope_parameters": "(removed)", "global_rope_theta": 500.0, "local_rope_theta": 50.0}),
                  ({}, {"rope_parameters": "(removed)", "rope_scaling": {"rope_type": "linear", "factor": 2.0}})]},
    "bert": {"class": "AutoModel", "base": NO_KV, "cases": BERT_CASES},
    "camembert": {"class": "AutoModel", "base": NO_KV, "cases": [*BERT_CASES, {"pad_token_id": 5}]},
    "electra": {"class": "AutoModel", "base": {**NO_KV, "embedding_size": 48}, "cases": [*BERT_CASES, {"embedding_size": 24}]},
    "distilbert": {"class": "AutoModel", "base": {**NO_KV, "dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 64, "hidden_size": "(removed)",
                                                  "num_hidden_layers": "(removed)", "num_attention_heads": "(removed)", "intermediate_size": "(removed)"}, "cases": [
        {"activation": "relu"}, {"sinusoidal_pos_embds": True}, {"n_heads": 3}, {"hidden_dim": 40}]},
    "nomic_bert": {"class": "AutoModel", "base": NO_KV, "cases": [{"hidden_act": "gelu"}, {"layer_norm_eps": 0.1}, {"type_vocab_size": 1}, {"num_attention_heads": 3, "head_dim": 16},
                                                                 {"head_dim": 20}, *ROPES]},
    "gte": {"class": "AutoModel", "base": NO_KV, "cases": [{"hidden_act": "silu"}, {"layer_norm_eps": 0.1}, {"type_vocab_size": 0}, {"type_vocab_size": 2},
                                                          {"num_attention_heads": 3}, *ROPES]},
    "jina_embeddings_v3": {"class": "AutoModel", "base": NO_KV, "cases": [{"hidden_act": "relu"}, {"layer_norm_eps": 0.1}, {"type_vocab_size": 2},
                                                                         {"num_attention_heads": 3}, *ROPES]},
    "eurobert": {"class": "AutoModel", "cases": [{"hidden_act": "gelu"}, {"rms_norm_eps": 0.1}, {"attention_bias": True}, {"mlp_bias": True}, *HEADS, *ROPES], "old_ropes": {}},
    "mpnet": {"class": "AutoModel", "base": NO_KV, "cases": [{"hidden_act": "relu"}, {"hidden_act": "silu"}, {"layer_norm_eps": 0.1}, {"num_attention_heads": 3},
                                                            {"relative_attention_num_buckets": 40}, {"relative_attention_num_buckets": 20}, {"pad_token_id": 5},
                                                            {"type_vocab_size": 3}]},
    "albert": {"class": "AutoModel", "base": {**NO_KV, "embedding_size": 24}, "cases": [*BERT_CASES, {"embedding_size": 48}, {"num_hidden_groups": 2}, {"num_hidden_groups": 3},
                                                                                      {"inner_group_num": 2}, {"num_hidden_groups": 2, "inner_group_num": 3}]},
    "roberta-prelayernorm": {"class": "AutoModel", "base": NO_KV, "cases": [*BERT_CASES, {"pad_token_id": 5}]},
    "xlm-roberta-xl": {"class": "AutoModel", "base": NO_KV, "cases": [*BERT_CASES, {"pad_token_id": 5}]},
    "ernie": {"class": "AutoModel", "base": {**NO_KV, "use_task_id": True}, "cases": [*BERT_CASES, {"use_task_id": False}, {"task_type_vocab_size": 5}]},
    "llama": {"base": BOTH_WAYS, "cases": [{"attention_bias": True}, *HEADS]},
    "mistral": {"base": {**BOTH_WAYS, "sliding_window": 6}, "cases": [{"sliding_window": None}, {"sliding_window": 1}, {"sliding_window": 500}, *HEADS]},
    "qwen2": {"base": BOTH_WAYS, "cases": [{"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
                                           {"layer_types": MIXED, "use_sliding_window": True, "sliding_window": 5}, *HEADS]},
    "qwen3": {"base": BOTH_WAYS, "cases": HEADS},
    "olmo2": {"base": BOTH_WAYS, "cases": HEADS},
    "phi3": {"base": BOTH_WAYS, "cases": [{"sliding_window": 5}, *HEADS]},
    "megatron-bert": {"class": "AutoModel", "base": NO_KV, "cases": BERT_CASES},
    "rembert": {"class": "AutoModel", "base": {**NO_KV, "input_embedding_size": 24}, "cases": [*BERT_CASES, {"input_embedding_size": 48}, {"input_embedding_size": 64},
                                                                                            {"output_embedding_size": 30}]},
    "roformer": {"class": "AutoModel", "base": NO_KV, "cases": [*BERT_CASES, {"embedding_size": 24}, {"embedding_size": 48}, {"embedding_size": 64},
                                                               {"rotary_value": True}, {"max_position_embeddings": 50}]},
    "t5": T5,
    "mt5": T5,
    "umt5": T5,
    "data2vec-text": {"class": "AutoModel", "base": NO_KV, "cases": [*BERT_CASES, {"pad_token_id": 5}]},
}
