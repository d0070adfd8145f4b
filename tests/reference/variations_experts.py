"""What compare_transformers.py tries of further mixtures and of further latent attention: sizes that are a family's own, cases, `edits`."""
from variations_mixed import ROPES

EXPERTS = {"hidden_size": 32, "head_dim": 8, "max_position_embeddings": 64, "num_experts_per_tok": 2, "intermediate_size": 24,
           "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
LATENT = {"hidden_size": 32, "head_dim": "(removed)", "max_position_embeddings": 64, "num_key_value_heads": 4, "q_lora_rank": 20, "kv_lora_rank": 16,
          "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "intermediate_size": 40,
          "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
LATENT_EXPERTS = {**LATENT, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
HEADS = [{"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}]
ACTIVATIONS = [({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"})]
ROPE_EDITS = [({}, rope) for rope in ROPES]
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.3, "attention_multiplier": 0.4}

FAMILIES = {
    "olmoe": {"base": {**EXPERTS, "num_experts": 6}, "cases": [
        *HEADS, {"attention_bias": True}, {"norm_topk_prob": True}, {"clip_qkv": 1.0},
    ], "edits": [*ACTIVATIONS, ({}, {"num_experts": "(removed)", "num_local_experts": 6}), *ROPE_EDITS]},
    "flex_olmo": {"base": {**EXPERTS, "num_experts": 6}, "cases": [*HEADS, {"attention_bias": True}, {"norm_topk_prob": True}],
                  "edits": [*ACTIVATIONS, ({}, {"num_experts": "(removed)", "num_local_experts": 6}), *ROPE_EDITS]},
    "solar_open": {"base": {**EXPERTS, "intermediate_size": "(removed)", "n_routed_experts": 8, "moe_intermediate_size": 20, "n_shared_experts": 1, "n_group": 2,
                            "topk_group": 1}, "cases": [
        *HEADS, {"attention_bias": True}, {"n_shared_experts": 2}, {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 2.5}), ({}, {"n_group": 4, "topk_group": 2}),
                 ({}, {"first_k_dense_replace": 1}), *ROPE_EDITS]},
    # Of a pad token transformers 5.24 loses the embedding, which may be the head, too.
    "afmoe": {"base": {**EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "num_hidden_layers": 4, "num_dense_layers": 1, "sliding_window": 8,
                       "num_shared_experts": 1}, "cases": [
        *HEADS, {"attention_bias": True}, {"num_shared_experts": 2}, {"num_dense_layers": 0}, {"num_dense_layers": 4}, {"global_attn_every_n_layers": 2},
        {"layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]}, {"mup_enabled": True},
    ], "edits": [*ACTIVATIONS, ({}, {"route_scale": 2.5}), ({}, {"norm_topk_prob": False}), ({}, {"layer_types": "(removed)"}), ({}, {"sliding_window": 3}),
                 *ROPE_EDITS]},
    "hy_v3": {"base": {**EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "num_shared_experts": 1}, "cases": [
        *HEADS, {"attention_bias": True}, {"num_shared_experts": 2}, {"mlp_layer_types": ["sparse", "dense", "sparse"]}, {"mlp_bias": True},
        {"enable_moe_fp32_combine": False},
    ], "edits": [*ACTIVATIONS, ({}, {"router_scaling_factor": 1.5}), ({}, {"routed_scaling_factor": 1.5}), ({}, {"norm_topk_prob": False}), ({}, {"first_k_dense_replace": 2}),
                 *ROPE_EDITS]},
    "mellum": {"base": {**EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
               "old_ropes": {}, "cases": [
        *HEADS, {"attention_bias": True}, {"mlp_layer_types": ["sparse", "dense", "sparse"]}, {"layer_types": None}, {"rope_parameters": None},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"sliding_window": None}), ({}, {"sliding_window": 3}), ({}, {"num_mtp_layers": 1}),
                 ({}, {"layer_types": "(removed)"}), ({}, {"rope_parameters": "(removed)", "rope_theta": 40.0, "rope_local_base_freq": 30.0}),
                 ({}, {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0}, "sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 300.0}}}),
                 ({}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0}}}),
                 ({}, {"use_sliding_window": True, "decoder_sparse_step": 2, "mlp_only_layers": [0]})]},
    "laguna": {"base": {**EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 12, "sliding_window": 8,
                        "num_attention_heads_per_layer": [4, 6, 2], "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
                        "moe_routed_scaling_factor": 2.5,
                        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
               "old_ropes": {}, "cases": [
        {"num_key_value_heads": 1}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"gating": "per-element"}, {"gating": "per-head"},
        {"num_attention_heads_per_layer": None}, {"mlp_layer_types": ["sparse", "dense", "sparse"]}, {"layer_types": None}, {"rope_parameters": None},
        {"moe_router_logit_softcapping": 0.5}, {"num_experts_per_tok": 1},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": True}), ({}, {"sliding_window": 3}), ({}, {"moe_router_logit_softcapping": 2.0}),
                 ({}, {"layer_types": "(removed)"}), ({}, {"mlp_layer_types": "(removed)"}), ({}, {"moe_routed_scaling_factor": 1.0}), ({}, {"rope_theta": 40.0}),
                 ({}, {"layer_types": "(removed)", "sliding_window": 0}), ({}, {"partial_rotary_factor": 0.25}),
                 ({}, {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 300.0, "partial_rotary_factor": 0.5}}})]},
    "cohere2_moe": {"base": {**EXPERTS, "num_experts": 6, "num_shared_experts": 1, "num_hidden_layers": 6, "sliding_window": 8, "expert_selection_fn": "sigmoid",
                             "prefix_dense_intermediate_size": 40, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse"],
                             "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}, "cases": [
        *HEADS[:2], {"tie_word_embeddings": False}, {"attention_bias": True}, {"num_shared_experts": 0}, {"num_shared_experts": 2}, {"shared_expert_combination_strategy": "sum"},
        {"expert_selection_fn": "softmax"}, {"norm_topk_prob": False}, {"expert_selection_fn": "softmax", "norm_topk_prob": False}, {"rms_norm_eps": 1e-3},
        {"mlp_layer_types": ["sparse", "dense", "sparse", "dense", "dense", "sparse"]}, {"prefix_dense_sliding_window_pattern": 2}, {"logit_scale": 1.5},
        {"layer_types": None, "mlp_layer_types": None, "first_k_dense_replace": 2}, {"layer_types": None, "mlp_layer_types": None, "sliding_window_pattern": 2},
        {"layer_types": None, "mlp_layer_types": None, "first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 2},
    ], "edits": [*ACTIVATIONS[1:], ({}, {"layer_norm_eps": 0.3}), ({}, {"rms_norm_eps": 0.3}), ({}, {"sliding_window": 3}), ({}, {"first_k_dense_replace": 2}),
                 ({}, {"expert_selection_fn": "argmax"}), ({}, {"num_experts_per_tok": 1}), ({}, {"num_experts": "(removed)", "num_local_experts": 6}),
                 ({}, {"layer_types": "(removed)", "mlp_layer_types": "(removed)", "first_k_dense_replace": 1, "sliding_window_pattern": 3}), *ROPE_EDITS]},
    "mimo_v2_flash": {"base": {**EXPERTS, "head_dim": 12, "v_head_dim": 8, "n_routed_experts": 6, "moe_intermediate_size": 20, "num_hidden_layers": 7, "sliding_window": 8,
                               "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                                                   "sliding_attention": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}}},
                      "old_ropes": None, "cases": [
        {"num_key_value_heads": 1}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"v_head_dim": 12}, {"v_head_dim": 5}, {"v_head_dim": 16},
        {"attention_value_scale": None}, {"attention_value_scale": 1.7}, {"n_group": 2, "topk_group": 1}, {"norm_topk_prob": False}, {"routed_scaling_factor": 2.5},
        {"mlp_layer_types": ["sparse", "dense", "sparse", "sparse", "dense", "sparse", "sparse"]}, {"head_dim": 24, "rope_parameters": None},
        {"layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 4}, {"layer_types": ["full_attention"] * 7}, {"layer_types": ["sliding_attention"] * 7},
    ], "edits": [*ACTIVATIONS, ({}, {"sliding_window": 3}), ({}, {"sliding_window_size": 3}), ({}, {"sliding_window_size": None}), ({}, {"routed_scaling_factor": None}),
                 ({}, {"layer_types": "(removed)"}), ({}, {"mlp_layer_types": "(removed)"}), ({}, {"num_experts_per_tok": 1}), ({}, {"n_shared_experts": 1}),
                 ({}, {"hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1]}), ({}, {"moe_layer_freq": [0, 1, 1, 1, 1, 1, 1]}), ({}, {"layernorm_epsilon": 0.3}),
                 ({}, {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 300.0, "partial_rotary_factor": 0.5}}}),
                 ({}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}}),
                 ({}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}}})]},
    "sarvam_moe": {"base": {**EXPERTS, "n_routed_experts": 6, "moe_intermediate_size": 20, "n_shared_experts": 1, "n_group": 2, "topk_group": 1}, "cases": [
        *HEADS, {"attention_bias": True}, {"n_shared_experts": 2}, {"first_k_dense_replace": 2}, {"use_qk_norm": False},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 1.0}), ({}, {"n_group": 3, "topk_group": 2}),
                 ({}, {"n_routed_experts": "(removed)", "num_experts": 6, "n_shared_experts": "(removed)", "num_shared_experts": 1, "attention_bias": "(removed)", "use_qkv_bias": False}),
                 *ROPE_EDITS]},
    "sarvam_mla": {"base": {**LATENT_EXPERTS, "q_lora_rank": None, "n_shared_experts": 1}, "cases": [
        {"tie_word_embeddings": True}, {"attention_bias": True}, {"q_lora_rank": 20}, {"n_shared_experts": 2}, {"n_group": 2, "topk_group": 1}, {"rope_interleave": False},
        {"first_k_dense_replace": 2},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 1.0}), ({}, {"head_dim": 24}),
                 ({}, {"n_routed_experts": "(removed)", "num_experts": 8, "n_shared_experts": "(removed)", "num_shared_experts": 1}), ({}, {"q_lora_rank": "(removed)"}),
                 ({}, {"rope_parameters": "(removed)", "rope_theta": 300.0, "rope_scaling": {"type": "deepseek_yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.7}}),
                 *ROPE_EDITS]},
    "axk1": {"base": {**LATENT_EXPERTS, "n_shared_experts": 1, "n_group": 2, "topk_group": 1}, "cases": [
        {"tie_word_embeddings": True}, {"attention_bias": True}, {"n_shared_experts": 2}, {"v_head_dim": 16}, {"rope_interleave": False},
        {"mlp_layer_types": ["sparse", "dense", "sparse"]}, {"mlp_layer_types": None, "first_k_dense_replace": 0, "moe_layer_freq": 2},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 1.0}), ({}, {"topk_method": "greedy"}), ({}, {"mlp_layer_types": "(removed)"}),
                 ({}, {"mlp_layer_types": "(removed)", "first_k_dense_replace": 2}), *ROPE_EDITS]},
    # As published, without matrices of experts that give back what they read: transformers 5.24 does not load those.
    "longcat_flash": {"base": {**LATENT, "pad_token_id": None, "num_hidden_layers": "(removed)", "num_layers": 2, "head_dim": 8, "intermediate_size": "(removed)", "ffn_hidden_size": 24,
                               "n_routed_experts": 6, "zero_expert_num": 3, "moe_topk": 4, "expert_ffn_hidden_size": 20}, "cases": [
        {"tie_word_embeddings": True}, {"attention_bias": True}, {"v_head_dim": 16}, {"zero_expert_num": 0}, {"zero_expert_num": 12}, {"moe_topk": 1}, {"moe_topk": 9, "n_routed_experts": 5, "zero_expert_num": 5},
        {"q_lora_rank": 64}, {"kv_lora_rank": 40}, {"num_layers": 1},
    ], "edits": [*ACTIVATIONS, ({}, {"routed_scaling_factor": 1.0}), ({}, {"num_key_value_heads": "(removed)"}), ({}, {"num_layers": "(removed)", "num_hidden_layers": 4}),
                 ({}, {"n_routed_experts": "(removed)", "num_local_experts": 6}), ({}, {"moe_topk": "(removed)", "num_experts_per_tok": 4}),
                 ({}, {"moe_topk": 2}), *ROPE_EDITS]},
    "youtu": {"base": {**LATENT, "pad_token_id": None}, "cases": [
        {"tie_word_embeddings": False}, {"attention_bias": True}, {"q_lora_rank": None}, {"rope_interleave": False}, {"v_head_dim": 16},
    ], "edits": [*ACTIVATIONS, *ROPE_EDITS]},
    "granitemoe": {"base": {**EXPERTS, "num_local_experts": 6}, "cases": [*HEADS, {"attention_bias": True}, GRANITE],
                   "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), *ROPE_EDITS]},
    "granitemoe_swa": {"base": {**EXPERTS, "num_local_experts": 6, "num_hidden_layers": 5, "sliding_window": 8}, "cases": [
        *HEADS, {"attention_bias": True}, {"shared_intermediate_size": 20}, GRANITE, {"layer_rope_theta": [0, 90.0, 0, 5000.0, 90.0]},
        {"layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 2},
    ], "edits": [*ACTIVATIONS, ({}, {"sliding_window": 3}), ({}, {"layer_rope_theta": "(removed)"}), ({}, {"layer_types": "(removed)"}), *ROPE_EDITS]},
    "granitemoeshared": {"base": {**EXPERTS, "num_local_experts": 6, "shared_intermediate_size": 20}, "cases": [
        *HEADS, {"attention_bias": True}, {"shared_intermediate_size": 0}, GRANITE], "edits": [*ACTIVATIONS, *ROPE_EDITS]},
    "ernie4_5_moe": {"base": {**EXPERTS, "num_experts_per_tok": "(removed)", "moe_k": 2, "moe_num_experts": 6, "moe_intermediate_size": 20,
                              "num_hidden_layers": 4}, "cases": [
        *HEADS, {"use_bias": True}, {"moe_num_shared_experts": 0}, {"moe_num_shared_experts": 1}, {"moe_layer_start_index": 0},
        {"moe_layer_end_index": 2}, {"moe_layer_interval": 2}, {"moe_layer_start_index": 2, "moe_layer_end_index": 3}, {"tie_word_embeddings": False},
        {"moe_k": 1},
    ], "edits": [*ACTIVATIONS, ({}, {"moe_norm_min": 0.5}), *ROPE_EDITS]},
    "dots1": {"base": {**EXPERTS, "n_routed_experts": 8, "moe_intermediate_size": 20, "n_shared_experts": 1, "first_k_dense_replace": 1,
                       "n_group": 2, "topk_group": 1}, "cases": [
        *HEADS, {"attention_bias": True}, {"n_shared_experts": 2}, {"first_k_dense_replace": 0}, {"first_k_dense_replace": 3},
        {"sliding_window": 8, "max_window_layers": 1}, {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": True}), ({}, {"routed_scaling_factor": 2.5}), ({}, {"n_group": 4, "topk_group": 2}), *ROPE_EDITS]},
    "exaone_moe": {"base": {**EXPERTS, "num_experts": 8, "moe_intermediate_size": 20, "num_hidden_layers": 4, "sliding_window": 8, "n_group": 2,
                            "topk_group": 1}, "cases": [
        *HEADS, {"num_shared_experts": 2}, {"first_k_dense_replace": 0}, {"first_k_dense_replace": 2}, {"sliding_window_pattern": "LLLG"},
        {"sliding_window_pattern": 2}, {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]},
        {"layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 1.5}), ({}, {"layer_types": "(removed)"}), *ROPE_EDITS]},
    "lfm2_moe": {"base": {**EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "num_hidden_layers": 4, "num_dense_layers": 1,
                          "layer_types": ["conv", "full_attention", "conv", "full_attention"]}, "cases": [
        *HEADS, {"conv_bias": True}, {"conv_L_cache": 4}, {"num_dense_layers": 0}, {"use_expert_bias": False}, {"norm_topk_prob": False},
        {"routed_scaling_factor": 2.0}, {"tie_word_embeddings": False},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_eps": 0.3}), *ROPE_EDITS]},
    "glm4_moe_lite": {"base": {**LATENT_EXPERTS, "n_group": 2, "topk_group": 1}, "cases": [
        {"tie_word_embeddings": True}, {"q_lora_rank": None}, {"attention_bias": True}, {"n_shared_experts": 2}, {"v_head_dim": 16},
        {"mlp_layer_types": ["sparse", "dense", "sparse"]},
    ], "edits": [*ACTIVATIONS, ({}, {"rope_interleave": False}), ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 1.0}),
                 ({}, {"partial_rotary_factor": 1.0}), ({}, {"head_dim": 24}), *ROPE_EDITS]},
    "minicpm3": {"base": LATENT, "cases": [
        {"tie_word_embeddings": False}, {"q_lora_rank": None}, {"attention_bias": True}, {"mlp_bias": True}, {"v_head_dim": 16}, {"scale_emb": 3},
        {"scale_depth": 2.5}, {"dim_model_base": 8}, {"scale_depth": None}, {"dim_model_base": None},
    ], "edits": [*ACTIVATIONS, ({}, {"rope_interleave": False}), *ROPE_EDITS]},
    "flint": {"base": {**EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24, "num_hidden_layers": 4, "head_dim": 12,
                       "sliding_window": 8, "mlp_only_layers": [1], "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]}, "cases": [
        *HEADS, {"attention_bias": True}, {"mlp_only_layers": []}, {"mlp_only_layers": None}, {"decoder_sparse_step": 2}, {"layer_types": None, "num_hidden_layers": 7},
        {"tie_word_embeddings": True}, {"head_dim": 20}, {"num_experts_per_tok": 6},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"sliding_window": 3}), ({}, {"mlp_only_layers": [1, 3]}), *ROPE_EDITS]},
    "mistral_large4_text": {"outer": ("mistral_large4", {"vision_config": {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                                                                           "num_attention_heads": 2, "image_size": 28, "patch_size": 14}}),
                            "base": {**LATENT_EXPERTS, "q_lora_rank": "(removed)", "n_shared_experts": 1, "num_hidden_layers": 5, "index_topk": 12, "index_head_dim": 16, "index_n_heads": 16}, "cases": [
        {"attention_bias": True}, {"n_shared_experts": 2}, {"n_shared_experts": 0}, {"v_head_dim": 16}, {"n_group": 2, "topk_group": 1}, {"num_experts_per_tok": 1}, {"index_n_heads": 32},
        {"index_head_dim": 8}, {"mlp_layer_types": ["sparse", "dense", "sparse", "dense", "dense"]}, {"indexer_types": ["full", "shared", "full", "shared", "shared"]},
        {"index_topk_freq": 2}, {"index_topk_freq": 2, "index_skip_topk_offset": 1}, {"index_topk_pattern": "FSFSF"}, {"no_rope_layers": [0, 1, 1, 0, 1]}, {"no_rope_layers": [1] * 5},
        {"no_rope_layers": [0] * 5}, {"no_rope_layer_interval": 2}, {"kv_source_layers": [0, 0, 0, 3, 0]}, {"kv_source_layers": [0, 1, 1, 3, 1]},
        {"kv_source_layers": [0, 1, 0, 1, 1], "no_rope_layers": [1, 0, 1, 0, 0], "indexer_types": ["full", "full", "shared", "full", "shared"]},
        {"kv_source_layers": [0, 0, 2, 3, 2]}, {"kv_source_layers": [0, 1, 0, 3, 1]}, {"first_k_dense_replace": 0}, {"first_k_dense_replace": 4}, {"final_logit_softcapping": 3.0},
        {"rope_parameters": None}, {"rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.7}},
    ], "edits": [*ACTIVATIONS, ({}, {"final_logit_softcapping": 1.0}), ({}, {"routed_scaling_factor": 2.5}), ({}, {"norm_topk_prob": False}), ({}, {"n_group": 2, "topk_group": 1}),
                 ({}, {"index_topk": 5}), ({}, {"index_topk": 64}), ({}, {"head_dim": 24}), ({}, {"num_key_value_heads": 1}), ({}, {"q_lora_rank": 20}), ({}, {"scoring_func": "sigmoid"}),
                 ({}, {"rope_interleave": False}), ({}, {"indexer_rope_interleave": False}), ({}, {"first_k_dense_replace": 2, "mlp_layer_types": "(removed)"}), ({}, {"mlp_layer_types": "(removed)"}),
                 ({}, {"indexer_types": "(removed)"}), ({}, {"no_rope_layers": "(removed)"}), ({}, {"kv_source_layers": "(removed)"}), ({}, {"no_rope_layers": [1, 1, 1, 0, 1, 0, 0]}),
                 ({}, {"n_routed_experts": "(removed)", "num_experts": 8}), ({}, {"tie_word_embeddings": True}), ({}, {"moe_layer_freq": 2}), ({}, {"layer_types": ["full_attention"] * 5}), *ROPE_EDITS]},
    "glm5_next_text": {"outer": ("glm5_next", {"vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32, "image_size": 28,
                                                                 "projection_intermediate_size": 48}}),
                       "base": {**{k: v for k, v in LATENT_EXPERTS.items() if k != "rope_parameters"}, "qk_rope_head_dim": 0, "n_shared_experts": 1, "num_hidden_layers": 5, "index_topk": 12, "index_kpool": 4, "index_head_dim": 16,
                                "index_n_heads": 16, "hc_mult": 2, "hc_sinkhorn_iters": 5, "swiglu_limit": 0.7, "linear_head_dim": 8, "linear_num_heads": 3}, "cases": [
        {"attention_bias": True}, {"n_shared_experts": 2}, {"n_shared_experts": 0}, {"v_head_dim": 16}, {"n_group": 2, "topk_group": 1}, {"norm_topk_prob": False}, {"num_experts_per_tok": 1},
        {"index_n_heads": 32}, {"index_head_dim": 8}, {"index_kpool": 2}, {"index_kpool": 1}, {"index_kpool": 3}, {"index_kpool": 12}, {"index_kpool": 8, "index_topk": 8}, {"index_topk": 4},
        {"index_kpool_always_select_tail": False}, {"mlp_layer_types": ["sparse", "dense", "sparse", "dense", "dense"]}, {"layer_types": ["indexed_attention"] * 5},
        {"layer_types": ["full_attention", "linear_attention", "indexed_attention", "linear_attention", "indexed_attention"]}, {"layer_types": ["linear_attention"] * 5},
        {"layer_types": ["indexed_attention", "indexed_attention", "linear_attention", "indexed_attention", "indexed_attention"], "indexer_types": ["full", "shared", "full", "full", "shared"]},
        {"layer_types": ["indexed_attention"] * 5, "indexer_types": ["full", "shared", "shared", "full", "full"]}, {"linear_lower_bound": None}, {"linear_lower_bound": -1.5},
        {"linear_conv_kernel_dim": 3}, {"linear_num_heads": 5}, {"linear_head_dim": 12}, {"linear_attn_config": {"head_dim": 12, "num_heads": 2, "short_conv_kernel_size": 3, "gate_lower_bound": -2.0}},
        {"hc_mult": 1}, {"hc_mult": 4}, {"hc_eps": 0.02}, {"hc_sinkhorn_iters": 1}, {"q_lora_rank": 64}, {"qk_rope_head_dim": 8},
    ], "edits": [*ACTIVATIONS, ({}, {"swiglu_limit": 10.0}), ({}, {"swiglu_limit": 0.0}), ({}, {"hc_eps": 0.3}), ({}, {"hc_sinkhorn_iters": 2}), ({}, {"routed_scaling_factor": 1.0}),
                 ({}, {"index_topk": 8}), ({}, {"index_topk": 64}), ({}, {"norm_topk_prob": False}), ({}, {"head_dim": 24}), ({}, {"linear_lower_bound": None}), ({}, {"linear_lower_bound": -3.0}),
                 ({}, {"linear_attn_config": {"head_dim": 8, "num_heads": 3, "gate_lower_bound": None}}), ({}, {"linear_attn_config": {"gate_lower_bound": None, "safe_gate": False}}),
                 ({}, {"linear_attn_config": {}}), ({"layer_types": None}, {"layer_types": "(removed)"}), ({}, {"mlp_layer_types": "(removed)"}), ({}, {"indexer_types": "(removed)"}),
                 ({}, {"first_k_dense_replace": 1}), ({}, {"n_routed_experts": "(removed)", "num_local_experts": 8}), ({}, {"num_key_value_heads": 2}), ({}, {"index_kpool_always_select_tail": False}),
                 ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}), ({}, {"scoring_func": "softmax"})]},
    "hy_v4": {"base": {**LATENT_EXPERTS, "num_key_value_heads": "(removed)", "index_topk": 12, "index_head_dim": 16, "index_n_heads": 16, "hc_mult": 3,
                       "swiglu_limit": 0.7, "num_hidden_layers": 4}, "cases": [
        {"tie_word_embeddings": True}, {"attention_bias": True}, {"n_shared_experts": 2}, {"n_shared_experts": 0}, {"v_head_dim": 16}, {"hc_mult": 1}, {"hc_mult": 5},
        {"hc_magnitude": 0.7}, {"hc_eps": 0.02}, {"n_group": 2, "topk_group": 1}, {"norm_topk_prob": False}, {"num_experts_per_tok": 1}, {"index_n_heads": 32},
        {"index_head_dim": 8}, {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]}, {"indexer_types": ["full", "shared", "full", "shared"]},
        {"indexer_types": ["full"] * 4}, {"num_hidden_layers": 7}, {"learnable_sink_init": 2.0}, {"q_lora_rank": 64},
    ], "edits": [*ACTIVATIONS, ({}, {"swiglu_limit": 10.0}), ({}, {"swiglu_limit": 0.0}), ({}, {"swiglu_limit": -1.0}), ({}, {"swiglu_limit": None}), ({}, {"hc_magnitude": 3.0}),
                 ({}, {"hc_eps": 0.3}), ({}, {"hc_mult": "(removed)"}), ({}, {"norm_topk_prob": False}), ({}, {"routed_scaling_factor": 1.0}), ({}, {"index_topk": 5}),
                 ({}, {"index_topk": 64}), ({}, {"n_group": 2, "topk_group": 1}), ({}, {"indexer_types": "(removed)"}), ({}, {"mlp_layer_types": "(removed)"}),
                 ({"num_hidden_layers": 7}, {"indexer_types": "(removed)", "mlp_layer_types": "(removed)"}), ({}, {"head_dim": 24}), ({}, {"num_key_value_heads": 1}),
                 ({}, {"rope_interleave": True}), ({}, {"indexer_rope_interleave": True}), ({}, {"first_k_dense_replace": 2}), ({}, {"q_lora_rank": None}),
                 ({}, {"learnable_sink_init": 3.0}), ({}, {"scoring_func": "softmax"}), ({}, {"hc_sinkhorn_iters": 3}), ({}, {"n_shared_experts": 2}),
                 ({}, {"n_routed_experts": "(removed)", "num_local_experts": 8}), ({}, {"layer_types": ["full_attention"] * 4}), *ROPE_EDITS]},
    "aria_text": {"base": {**EXPERTS, "num_experts_per_tok": "(removed)", "moe_num_experts": 6, "moe_topk": 2, "intermediate_size": 20}, "cases": [
        *HEADS, {"attention_bias": True}, {"mlp_bias": True}, {"moe_num_shared_experts": 1}, {"moe_topk": 1}, {"moe_topk": 6}, {"head_dim": 20}, {"tie_word_embeddings": True},
    ], "edits": [*ACTIVATIONS, ({}, {"norm_topk_prob": False}), ({}, {"num_experts_per_tok": 3}), *ROPE_EDITS]},
}
