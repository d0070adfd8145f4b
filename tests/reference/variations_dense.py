"""What compare_transformers.py tries of dense decoders: sizes that are a family's own, cases, rope keys of files of before transformers 5."""


def rope(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


ROPES = [
    rope(theta=500.0), rope("linear", factor=4.0), rope("dynamic", factor=2.0), rope("dynamic", factor=2.0, original_max_position_embeddings=16),
    rope("yarn", factor=4.0, original_max_position_embeddings=32),
    rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.3, beta_fast=16, beta_slow=2),
    rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=0.5),
    rope("yarn", factor=8.0, original_max_position_embeddings=16, truncate=False),
    rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)]
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
FULL_FIRST = ["full_attention", "sliding_attention", "full_attention"]
HEADS = [{"num_key_value_heads": 1}, {"num_key_value_heads": 4}]
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [2.0, 3, 4, 5, 6, 7]}
PHI4_TOWERS = {"vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 28, "crop_size": 28, "image_token_id": 400},
               "audio_config": {"hidden_size": 16, "intermediate_size": 16, "num_blocks": 1, "num_attention_heads": 1, "ext_pw_out_channel": 16, "input_size": 8, "audio_token_id": 401,
                                "depthwise_separable_out_channel": 16, "nemo_conv_channels": 16, "bias_max_distance": 4}}
# Sizes by GPT-2's names alone.
NARROW_GPT = {**{key: "(removed)" for key in ("num_key_value_heads", "intermediate_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                                              "max_position_embeddings")},
              "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}


def two_ropes(full, sliding):
    return {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}


FAMILIES = {
    "llama": {"old_ropes": {}, "cases": [
        {"head_dim": 20}, {"attention_bias": True}, {"mlp_bias": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"hidden_act": "gelu_pytorch_tanh"},
        {"hidden_act": "relu"}, {"hidden_act": "gelu_new"}, {"hidden_act": "relu2"}, {"tie_word_embeddings": True}, {"pretraining_tp": 2}, *HEADS, *ROPES]},
    "mistral": {"base": {"sliding_window": 16}, "old_ropes": {}, "cases": [
        {"sliding_window": None}, {"head_dim": 20}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1}, {"tie_word_embeddings": True}, {"attention_bias": True},
        *HEADS, *ROPES]},
    "qwen2": {"old_ropes": {}, "cases": [
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, {"use_sliding_window": False, "sliding_window": 8},
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
        {"layer_types": MIXED, "use_sliding_window": True, "sliding_window": 8}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, {"head_dim": 20},
        *HEADS, *ROPES]},
    "qwen3": {"base": {"head_dim": 16}, "old_ropes": {}, "cases": [
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, {"attention_bias": True}, {"tie_word_embeddings": True},
        {"layer_types": MIXED, "use_sliding_window": True, "sliding_window": 8}, *HEADS, *ROPES]},
    # hidden_activation, where files have it, counts; transformers 5 reads hidden_act alone.
    "gemma": {"base": {"head_dim": 16}, "old_ropes": {}, "cases": [
        {"hidden_act": "gelu"}, {"attention_bias": True}, {"tie_word_embeddings": False}, {"use_bidirectional_attention": True}, *HEADS]},
    "gemma2": {"base": {"head_dim": 16, "sliding_window": 8}, "old_ropes": {}, "cases": [
        {"attn_logit_softcapping": None, "final_logit_softcapping": None}, {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.0},
        {"query_pre_attn_scalar": 33}, {"layer_types": FULL_FIRST}, {"hidden_activation": "gelu"}, {"attention_bias": True},
        {"tie_word_embeddings": False}, {"use_bidirectional_attention": True}, *HEADS]},
    # attn_logit_softcapping: transformers reads it and leaves it out.
    "gemma3_text": {"base": {"head_dim": 16, "sliding_window": 8}, "old_ropes": {"rope_local_base_freq": 77.0}, "cases": [
        {"num_hidden_layers": 7}, {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}, {"final_logit_softcapping": 2.0},
        {"query_pre_attn_scalar": 11}, {"attention_bias": True}, {"use_bidirectional_attention": True}, *HEADS,
        two_ropes({"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0}, {"rope_type": "default", "rope_theta": 77.0}),
        two_ropes({"rope_type": "default", "rope_theta": 500.0}, {"rope_type": "linear", "factor": 3.0, "rope_theta": 77.0})]},
    # yarn, beside factors, is LongRoPE there.
    "phi3": {"cases": [
        {"sliding_window": 8}, {"original_max_position_embeddings": 32, **rope("yarn", original_max_position_embeddings=32, **LONG)},
        rope(partial_rotary_factor=0.5), {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, *HEADS,
        {"original_max_position_embeddings": 32, **rope("longrope", **LONG)},
        {"original_max_position_embeddings": 64, **rope("longrope", original_max_position_embeddings=64, **LONG)}]},
    "gpt2": {"cases": [
        {"activation_function": "gelu"}, {"activation_function": "relu"}, {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True}, {"layer_norm_epsilon": 0.1}, {"n_inner": 100}, {"tie_word_embeddings": False}]},
    "openai-gpt": {"base": NARROW_GPT, "cases": [
        {"afn": "relu"}, {"afn": "silu"}, {"afn": "swish"}, {"layer_norm_epsilon": 0.1}, {"n_head": 2}, {"n_layer": 1}, {"tie_word_embeddings": False}],
        "edits": [({}, {"afn": "gelu_new"}), ({}, {"n_embd": "(removed)", "hidden_size": 64}), ({}, {"n_layer": "(removed)", "num_hidden_layers": 2}),
                  ({}, {"n_head": "(removed)", "num_attention_heads": 4})]},
    # A window of one token, or none, is nothing that transformers has a mask for.
    "modernbert-decoder": {"base": {"num_key_value_heads": "(removed)", "local_attention": 12, "cls_token_id": 1, "sep_token_id": 2}, "cases": [
        {"local_attention": 2}, {"local_attention": 7}, {"local_attention": 300}, {"norm_bias": True}, {"attention_bias": True}, {"mlp_bias": True}, {"hidden_activation": "silu"},
        {"norm_eps": 0.1}, {"decoder_bias": False}, {"classifier_bias": True}, {"classifier_activation": "relu"}, {"tie_word_embeddings": False},
        {"tie_word_embeddings": False, "decoder_bias": False}, {"layer_types": MIXED}, {"layer_types": FULL_FIRST}, {"global_attn_every_n_layers": 1}, {"global_attn_every_n_layers": 2},
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}],
        "edits": [({}, {"rope_parameters": "(removed)", "global_rope_theta": 500.0, "local_rope_theta": 50.0}),
                  ({}, {"layer_types": "(removed)", "global_attn_every_n_layers": 2}), ({}, {"head_dim": 24}), ({}, {"num_key_value_heads": 2})]},
    "olmo2": {"old_ropes": {}, "cases": [
        {"attention_bias": True}, {"tie_word_embeddings": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, *HEADS, *ROPES]},
    # Old files: transformers 5 takes rope_theta for full layers and its own default for the others; published files have that default.
    "olmo3": {"base": {"sliding_window": 8}, "old_ropes": {"rope_theta": 500000.0}, "cases": [
        {"num_hidden_layers": 5}, {"attention_bias": True}, {"layer_types": FULL_FIRST}, *HEADS, ROPES[4], ROPES[5]]},
    "granite": {"old_ropes": {}, "cases": [
        {"embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.3, "attention_multiplier": 0.4}, {"attention_bias": True},
        {"mlp_bias": True}, {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "granite_swa": {"base": {"num_hidden_layers": 5, "sliding_window": 8}, "old_ropes": {}, "cases": [
        {"embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.3, "attention_multiplier": 0.4}, {"attention_bias": True},
        {"mlp_bias": True}, {"tie_word_embeddings": False}, {"layer_rope_theta": [0, 90.0, 0, 5000.0, 90.0]}, {"layer_types": [*MIXED, *FULL_FIRST[:2]]}, *HEADS, *ROPES]},
    "iquestcoder": {"base": {"head_dim": 12}, "old_ropes": {}, "cases": [
        {"head_dim": 20}, {"head_dim": None}, {"num_key_value_heads": None}, {"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True},
        *HEADS, *ROPES]},
    "starcoder2": {"old_ropes": {}, "cases": [
        {"sliding_window": 8}, {"use_bias": False}, {"hidden_act": "gelu"}, {"norm_epsilon": 0.1}, {"tie_word_embeddings": False}, *HEADS, *ROPES]},
    "glm4": {"base": {"head_dim": 16}, "old_ropes": {"partial_rotary_factor": 0.5}, "cases": [
        {"head_dim": 24}, {"attention_bias": True}, {"partial_rotary_factor": 1.0}, rope(theta=1000.0, partial_rotary_factor=0.25),
        {"tie_word_embeddings": True}, *HEADS]},
    "smollm3": {"old_ropes": {}, "cases": [
        {"no_rope_layers": [1, 0, 1]}, {"no_rope_layer_interval": 2}, {"use_sliding_window": True, "sliding_window": 8, "layer_types": MIXED},
        {"use_sliding_window": True, "sliding_window": 8}, {"attention_bias": True}, {"mlp_bias": True}, {"tie_word_embeddings": False}, *HEADS, *ROPES]},
    "exaone4": {"base": {"sliding_window": 8, "num_hidden_layers": 4}, "old_ropes": {}, "cases": [
        {"sliding_window_pattern": 2}, {"layer_types": MIXED, "num_hidden_layers": 3}, {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "cohere": {"base": {"hidden_size": 64}, "old_ropes": {}, "cases": [
        {"use_qk_norm": True}, {"use_qk_norm": True, "layer_norm_eps": 0.1}, {"use_qk_norm": True, "num_key_value_heads": 4}, {"logit_scale": 0.5},
        {"attention_bias": True}, {"tie_word_embeddings": False}, *HEADS, *ROPES]},
    "cohere2": {"base": {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 4}, "old_ropes": {}, "cases": [
        {"logit_scale": 0.5}, {"layer_norm_eps": 0.1}, {"attention_bias": True}, {"layer_types": FULL_FIRST, "num_hidden_layers": 3},
        {"tie_word_embeddings": False}, {"use_qk_norm": True}, *HEADS]},
    "opt": {"base": {"num_key_value_heads": "(removed)", "ffn_dim": 80}, "cases": [
        {"do_layer_norm_before": False}, {"word_embed_proj_dim": 24}, {"do_layer_norm_before": False, "word_embed_proj_dim": 24},
        {"_remove_final_layer_norm": True}, {"word_embed_proj_dim": 24, "tie_word_embeddings": False}, {"activation_function": "gelu"}, {"enable_bias": False},
        {"layer_norm_elementwise_affine": False}, {"tie_word_embeddings": False}]},
    "gpt_neox": {"base": {"num_key_value_heads": "(removed)", "hidden_size": 64, "rotary_pct": 0.5}, "old_ropes": {"rotary_emb_base": 1000.0}, "cases": [
        {"rotary_pct": 1.0}, {"use_parallel_residual": False}, {"hidden_act": "gelu_fast"}, {"hidden_act": "gelu_new"}, {"attention_bias": False},
        {"tie_word_embeddings": True}, {"layer_norm_eps": 0.1}, ROPES[0]]},
    "falcon": {"base": {"num_key_value_heads": "(removed)", "hidden_size": 64, "ffn_hidden_size": 80}, "old_ropes": {"rope_theta": 500042.0}, "cases": [
        {"multi_query": False}, {"parallel_attn": False}, {"parallel_attn": False, "multi_query": False, "bias": True}, {"bias": True},
        {"new_decoder_architecture": True, "num_kv_heads": 2}, {"new_decoder_architecture": True, "num_kv_heads": 4},
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}, {"num_kv_heads": 2}, {"ffn_hidden_size": None},
        {"alibi": True}, {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}, {"activation": "relu"},
        {"layer_norm_epsilon": 0.1}, {"tie_word_embeddings": False}, ROPES[0]]},
    "gptj": {"base": {**NARROW_GPT, "rotary_dim": 8}, "cases": [
        {"rotary_dim": 16}, {"rotary_dim": 4}, {"n_inner": 80}, {"activation_function": "relu"}, {"layer_norm_epsilon": 0.1}]},
    "codegen": {"base": {**NARROW_GPT, "rotary_dim": 8}, "cases": [{"rotary_dim": 16}, {"n_inner": 80}, {"activation_function": "relu"}]},
    "gpt_bigcode": {"base": NARROW_GPT, "cases": [
        {"multi_query": False}, {"scale_attn_weights": False}, {"n_inner": 80}, {"activation_function": "gelu"}, {"tie_word_embeddings": False},
        {"attention_softmax_in_fp32": False}]},
    "bloom": {"base": {"num_key_value_heads": "(removed)", "intermediate_size": "(removed)", "hidden_size": 64, "n_layer": 2, "n_head": 4,
                       "num_hidden_layers": "(removed)", "num_attention_heads": "(removed)"}, "cases": [
        {"n_head": 2}, {"layer_norm_epsilon": 0.1}, {"tie_word_embeddings": False}, {"hidden_size": 48, "n_head": 3},
        {"apply_residual_connection_post_layernorm": True}]},
    "mpt": {"base": {**{key: "(removed)" for key in ("num_key_value_heads", "intermediate_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                                                       "max_position_embeddings")},
                     "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 128}, "cases": [
        {"n_heads": 2}, {"d_model": 48, "n_heads": 3}, {"layer_norm_epsilon": 0.1}, {"tie_word_embeddings": False}, {"attn_config": {"softmax_scale": 0.5}},
        {"attn_config": {"clip_qkv": 2.0}}, {"attn_config": {"qk_ln": True}}, {"attn_config": {"alibi": False}}, {"no_bias": False}]},
    "apertus": {"old_ropes": {}, "cases": [
        {"head_dim": 16}, {"attention_bias": True}, {"hidden_act": "gelu"}, {"hidden_act": "silu"}, {"tie_word_embeddings": True}, {"rms_norm_eps": 0.1},
        *HEADS, *ROPES]},
    "glm": {"base": {"head_dim": 16}, "old_ropes": {"partial_rotary_factor": 0.5}, "cases": [
        {"head_dim": 24}, {"attention_bias": False}, {"partial_rotary_factor": 1.0}, rope(theta=1000.0, partial_rotary_factor=0.25), {"hidden_act": "gelu"},
        {"tie_word_embeddings": True}, *HEADS]},
    "cwm": {"base": {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 5}, "old_ropes": {}, "cases": [
        {"layer_types": FULL_FIRST, "num_hidden_layers": 3}, {"mlp_bias": True}, {"sliding_window": 3}, {"tie_word_embeddings": True}, {"hidden_act": "gelu"},
        *HEADS, *ROPES]},
    "internlm3": {"base": {"head_dim": 16}, "old_ropes": {}, "cases": [
        {"attention_bias": True, "mlp_bias": True}, {"head_dim": 20}, {"tie_word_embeddings": True}, {"hidden_act": "gelu"}, *HEADS, *ROPES]},
    "hyperclovax": {"old_ropes": {}, "cases": [
        {"embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.3, "attention_multiplier": 0.4}, {"use_post_norm": False},
        {"attention_bias": True}, {"mlp_bias": True}, {"head_dim": 16}, {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "bitnet": {"old_ropes": {}, "cases": [
        {"attention_bias": True}, {"hidden_act": "silu"}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, {"rms_norm_eps": 0.1}, *HEADS, *ROPES]},
    "nanochat": {"old_ropes": {}, "cases": [
        {"attention_bias": True}, {"final_logit_softcapping": None}, {"final_logit_softcapping": 2.0}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True},
        {"rms_norm_eps": 0.1}, *HEADS, *ROPES]},
    "seed_oss": {"base": {"head_dim": 16}, "old_ropes": {}, "cases": [
        {"attention_bias": False}, {"attention_out_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True},
        {"pretraining_tp": 2}, *HEADS, *ROPES]},
    "ernie4_5": {"base": {"head_dim": 16}, "old_ropes": {}, "cases": [
        {"use_bias": True}, {"tie_word_embeddings": False}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1}, *HEADS, *ROPES]},
    "ministral3": {"base": {"head_dim": 16, **rope("yarn", 5000.0, factor=4.0, original_max_position_embeddings=16, llama_4_scaling_beta=0.4)}, "cases": [
        {"sliding_window": 8}, {"tie_word_embeddings": True}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1}, *HEADS,
        rope("yarn", factor=4.0, original_max_position_embeddings=16, llama_4_scaling_beta=0.0),
        rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1),
        rope(theta=300.0, original_max_position_embeddings=8, llama_4_scaling_beta=0.3)]},
    "arcee": {"old_ropes": {}, "cases": [
        {"head_dim": 20}, {"attention_bias": True}, {"mlp_bias": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "silu"}, {"tie_word_embeddings": True},
        *HEADS, *ROPES]},
    "phi": {"base": {"hidden_size": 64}, "old_ropes": {}, "cases": [
        {"qk_layernorm": True}, {"qk_layernorm": True, "layer_norm_eps": 0.1}, {"layer_norm_eps": 0.1}, {"hidden_act": "gelu"},
        {"tie_word_embeddings": True}, *HEADS, rope(partial_rotary_factor=0.25), {"partial_rotary_factor": 1.0}, ROPES[0]]},
    "nemotron": {"base": {"hidden_size": 64}, "old_ropes": {}, "cases": [
        {"head_dim": 24}, {"attention_bias": True}, {"mlp_bias": True}, {"norm_eps": 0.1}, {"hidden_act": "silu"}, {"tie_word_embeddings": True},
        *HEADS, rope(partial_rotary_factor=0.25), {"partial_rotary_factor": 1.0}, ROPES[0]]},
    "olmo": {"old_ropes": {}, "cases": [
        {"clip_qkv": 1.0}, {"attention_bias": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "stablelm": {"base": {"hidden_size": 64}, "old_ropes": {}, "cases": [
        {"qk_layernorm": True}, {"qk_layernorm": True, "layer_norm_eps": 0.1}, {"layer_norm_eps": 0.1}, {"hidden_act": "gelu"},
        {"use_parallel_residual": True}, {"use_parallel_residual": True, "qk_layernorm": True}, {"use_qkv_bias": True}, {"tie_word_embeddings": True},
        *HEADS, rope(partial_rotary_factor=0.5), {"partial_rotary_factor": 1.0}, ROPES[0]]},
    "hunyuan_v1_dense": {"base": {"head_dim": 12}, "old_ropes": {}, "cases": [
        {"head_dim": 20}, {"attention_bias": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True},
        rope("dynamic", alpha=1000.0, factor=1.0), rope("dynamic", theta=500.0, alpha=2.0), rope("dynamic", factor=2.0, alpha=None), *HEADS, *ROPES]},
    "gpt_neo": {"base": {"num_key_value_heads": "(removed)", "num_hidden_layers": "(removed)", "num_attention_heads": "(removed)", "num_layers": 2, "num_heads": 4,
                         "attention_types": [[["global", "local"], 1]], "window_size": 8}, "cases": [
        {"num_heads": 2}, {"window_size": 3}, {"attention_types": [[["global"], 2]]}, {"attention_types": [[["local"], 1], [["global"], 1]]},
        {"intermediate_size": None}, {"activation_function": "relu"}, {"layer_norm_epsilon": 0.1}, {"tie_word_embeddings": False}]},
    "exaone": {"old_ropes": {}, "cases": [
        {"head_dim": 20}, {"attention_bias": True}, {"mlp_bias": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "ministral": {"base": {"sliding_window": 8, "head_dim": 12}, "old_ropes": {}, "cases": [
        {"sliding_window": None}, {"layer_types": MIXED}, {"layer_types": FULL_FIRST}, {"head_dim": 20}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1},
        {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "helium": {"base": {"head_dim": 12}, "old_ropes": {"rope_theta": 100000.0}, "cases": [
        {"attention_bias": True}, {"mlp_bias": True}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, *HEADS, *ROPES]},
    "jais2": {"old_ropes": {}, "cases": [
        {"head_dim": 20}, {"attention_bias": False}, {"mlp_bias": False}, {"layer_norm_eps": 0.1}, {"hidden_act": "silu"}, {"tie_word_embeddings": True}, *HEADS,
        *ROPES]},
    "vaultgemma": {"base": {"head_dim": 12, "sliding_window": 8}, "old_ropes": {}, "cases": [
        {"head_dim": 20}, {"query_pre_attn_scalar": 100}, {"attn_logit_softcapping": None}, {"final_logit_softcapping": None}, {"attn_logit_softcapping": 1.0},
        {"final_logit_softcapping": 2.0}, {"layer_types": FULL_FIRST}, {"attention_bias": True}, {"tie_word_embeddings": False}, {"hidden_activation": "relu"},
        *HEADS, *ROPES]},
    "biogpt": {"base": {"num_key_value_heads": "(removed)"}, "cases": [
        {"scale_embedding": False}, {"layer_norm_eps": 0.3}, {"hidden_act": "relu"}, {"hidden_act": "gelu_new"}, {"num_attention_heads": 3}, {"intermediate_size": 40},
        {"tie_word_embeddings": False}, {"layerdrop": 0.3}]},
    "xglm": {"base": {"num_key_value_heads": "(removed)", "hidden_size": "(removed)", "num_hidden_layers": "(removed)", "num_attention_heads": "(removed)",
                      "intermediate_size": "(removed)", "d_model": 48, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64}, "cases": [
        {"scale_embedding": False}, {"activation_function": "relu"}, {"attention_heads": 3}, {"ffn_dim": 40}, {"tie_word_embeddings": False}, {"pad_token_id": 5},
        {"pad_token_id": 30}, {"d_model": 44}]},
    "gpt_neox_japanese": {"base": {"num_key_value_heads": "(removed)", "intermediate_size": "(removed)"}, "old_ropes": {"rotary_emb_base": 300}, "cases": [
        {"intermediate_multiple_size": 1}, {"hidden_act": "relu"}, {"layer_norm_eps": 0.1}, {"num_attention_heads": 3}, {"tie_word_embeddings": False},
        rope(partial_rotary_factor=0.5), {"rotary_pct": 0.5, "rotary_emb_base": 300}, *ROPES]},
    "persimmon": {"base": {"num_key_value_heads": "(removed)"}, "old_ropes": {}, "cases": [
        {"qk_layernorm": False}, {"hidden_act": "gelu"}, {"layer_norm_eps": 0.1}, {"num_attention_heads": 2}, {"tie_word_embeddings": True},
        rope(partial_rotary_factor=0.5), rope(partial_rotary_factor=1.0), {"partial_rotary_factor": 1.0}, {"partial_rotary_factor": None}, ROPES[0]]},
    "cohere_compass_text": {"base": {"sliding_window": 8, "layer_types": FULL_FIRST, "rope_parameters": {"full_attention": None, "sliding_attention": {
        "rope_type": "default", "rope_theta": 5000.0}}}, "cases": [
        {"attention_bias": True}, {"layer_norm_eps": 0.1}, {"logit_scale": 0.3}, {"hidden_act": "gelu"}, {"tie_word_embeddings": False}, {"layer_types": MIXED}, *HEADS,
        two_ropes(rope(theta=500.0)["rope_parameters"], rope(theta=50.0)["rope_parameters"]),
        two_ropes(rope("linear", factor=4.0)["rope_parameters"], rope(theta=50.0)["rope_parameters"]),
        {"sliding_window": 3}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [2, 2, 2]},
                                                     "sliding_attention": None}}]},
    # Lists attention and MLPs one by one in files; here layers are whole.
    "dory": {"base": {"hidden_size": 32, "head_dim": 12, "num_hidden_layers": 5, "n_input_layers": 1, "n_recurrent_layers": 3, "n_output_layers": 1, "sliding_window": 8,
                      "initializer_range": 0.7, "ngpt_alpha_init": 0.3, "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
                      "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
             "cases": [
        *HEADS, {"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, {"n_recurrent_loops": 1}, {"n_recurrent_loops": 4},
        {"n_input_layers": 0, "n_recurrent_layers": 4}, {"n_output_layers": 0, "n_recurrent_layers": 4}, {"n_recurrent_layers": None}, {"n_recurrent_layers": 0, "n_input_layers": 4},
        {"n_input_layers": 0, "n_output_layers": 0, "n_recurrent_layers": 5}, {"n_recurrent_layers": 1, "n_input_layers": 4, "n_output_layers": 0},
        {"ngpt_alpha_init": 0.05}, {"ngpt_alpha_init": 0.9}, {"initializer_range": 0.0177}, {"sliding_window": 3}, {"layer_types": None, "rope_parameters": None},
        {"layer_types": ["full_attention"] * 5}, {"layer_types": ["sliding_attention"] * 5}, {"recurrent_kv_cache_mode": "last_loop"},
        two_ropes({"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}, {"rope_type": "default", "rope_theta": 50.0}),
        two_ropes({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0}, {"rope_type": "default", "rope_theta": 50.0}),
        two_ropes({"rope_type": "default", "rope_theta": 5000.0}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0})]},
    # Ropes of other types than these two are refused there.
    "phi4_multimodal": {"base": {**PHI4_TOWERS, "original_max_position_embeddings": 32}, "old_ropes": {}, "cases": [
        {"sliding_window": 8}, rope("longrope", **LONG), rope("yarn", **LONG), rope("su", **LONG), rope(partial_rotary_factor=0.5), {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1},
        {"original_max_position_embeddings": 16, **rope("longrope", **LONG)}, rope("longrope", partial_rotary_factor=0.5, short_factor=[1.0, 1.1, 1.2], long_factor=[2.0, 3, 4]),
        {"tie_word_embeddings": True}, {"num_key_value_heads": None}, *HEADS, rope(theta=500.0)]},
    # Tying means nothing there.
    "mllama_text_model": {"outer": ("mllama", {"image_token_index": 96, "vision_config": {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_global_layers": 1, "attention_heads": 2, "image_size": 28, "patch_size": 14, "vision_output_dim": 64,
        "intermediate_layers_indices": [0]}}), "base": {"num_hidden_layers": 4, "cross_attention_layers": [1, 3]}, "old_ropes": {}, "cases": [
        {"cross_attention_layers": []}, {"cross_attention_layers": None}, {"cross_attention_layers": [0, 1, 2]}, {"cross_attention_layers": [0, 0, 9]}, {"rms_norm_eps": 0.1},
        {"hidden_act": "gelu"}, {"tie_word_embeddings": True}, {"num_attention_heads": 2}, *HEADS, *ROPES]},
    "muse_glimmer_text": {"outer": ("muse_glimmer", {"vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}}),
                          "base": {"head_dim": 16, "num_hidden_layers": 4, "sliding_window": 8, "rms_norm_eps": 1e-3, "post_norm_eps": 1e-2, "final_logit_softcapping": 4.0,
                                   "output_multiplier": 0.5, "qk_scale_factor": 2.0}, "old_ropes": {"layer_rope_theta": "(removed)"}, "cases": [
        {"layer_types": ["full_attention", *MIXED], "layer_rope_theta": [10000.0, 0, 0, 10000.0]}, {"layer_rope_theta": [0, 500.0, 0, 0]}, {"num_hidden_layers": 6},
        {"layer_types": ["full_attention"] * 4, "sliding_window": None}, {"sliding_window": None}, {"sliding_window": 3}, {"attention_bias": True}, {"head_dim": 20}, {"rms_norm_eps": 0.1},
        {"hidden_activation": "gelu"}, {"tie_word_embeddings": True}, {"output_multiplier": 2.0}, {"final_logit_softcapping": 0.5}, {"qk_scale_factor": 0.3}, {"post_norm_eps": 1e-8},
        *HEADS, *ROPES]},
}
