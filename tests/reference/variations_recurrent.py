"""What compare_transformers.py tries of recurrent networks and hybrids: variations_mixed.py says how it is written.

Weights of kimi_linear have to be renamed as published ones before Inlay reads them (transformers 5.24 writes dense MLPs as "block_sparse_moe").
"""
from variations_mixed import ROPES

FAMILIES = {
    "bamba": {"base": {
        "hidden_size": 32, "num_hidden_layers": 3, "max_position_embeddings": 64, "intermediate_size": 24, "attn_layer_indices": [1], "mamba_n_heads": 4,
        "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"mlp_bias": True},
        {"mamba_proj_bias": True}, {"mamba_conv_bias": False}, {"mamba_n_groups": 2}, {"attn_layer_indices": None}, {"attn_layer_indices": [0, 1, 2]},
        {"mamba_d_conv": 3},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"time_step_limit": [0.1, 0.5]}), ({}, {"mamba_d_head": "auto"}),
        ({}, {"partial_rotary_factor": 0.25}), *(({}, rope) for rope in ROPES),
    ]},
    "qwen3_next": {"base": {
        "hidden_size": 32, "head_dim": 16, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_experts_per_tok": 2, "num_experts": 6,
        "moe_intermediate_size": 24, "intermediate_size": 40,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "shared_expert_intermediate_size": 20,
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"linear_num_value_heads": 2},
        {"linear_conv_kernel_dim": 3}, {"linear_conv_kernel_dim": 2}, {"attention_bias": True},
        {"layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]},
        {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "linear_attention"]},
        {"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]}, {"head_dim": 24}, {"decoder_sparse_step": 2},
        {"mlp_only_layers": [1, 3]},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"}),
        ({}, {"full_attention_interval": 2, "layer_types": "(removed)"}),
        ({"layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}, {"full_attention_interval": 3, "layer_types": "(removed)"}),
        ({"layer_types": None}, {"layer_types": "(removed)"}), ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0}}),
        ({}, {"partial_rotary_factor": 0.25, "rope_parameters": "(removed)", "rope_theta": 5000.0}), ({}, {"norm_topk_prob": False}),
        ({}, {"attn_output_gate": True}), *(({}, rope) for rope in ROPES),
    ]},
    "qwen3_5_text": {"base": {
        "hidden_size": 32, "head_dim": 16, "num_hidden_layers": 4, "max_position_embeddings": 64,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "intermediate_size": 40,
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"linear_num_value_heads": 2},
        {"linear_conv_kernel_dim": 3}, {"linear_conv_kernel_dim": 2}, {"attention_bias": True},
        {"layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]},
        {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "linear_attention"]},
        {"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]}, {"head_dim": 24},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"}),
        ({}, {"full_attention_interval": 2, "layer_types": "(removed)"}),
        ({"layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}, {"full_attention_interval": 3, "layer_types": "(removed)"}),
        ({"layer_types": None}, {"layer_types": "(removed)"}), ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0}}),
        ({}, {"partial_rotary_factor": 0.25, "rope_parameters": "(removed)", "rope_theta": 5000.0}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True}}),
        ({}, {"attn_output_gate": False}), ({}, {"full_attention_interval": 4, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1}),
        *(({}, rope) for rope in ROPES),
    ]},
    "qwen3_5_moe_text": {"base": {
        "hidden_size": 32, "head_dim": 16, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_experts_per_tok": 2, "num_experts": 6,
        "moe_intermediate_size": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "shared_expert_intermediate_size": 20, "intermediate_size": "(removed)",
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"linear_num_value_heads": 2},
        {"linear_conv_kernel_dim": 3}, {"linear_conv_kernel_dim": 2}, {"attention_bias": True},
        {"layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]},
        {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "linear_attention"]},
        {"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]}, {"head_dim": 24},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"}),
        ({}, {"full_attention_interval": 2, "layer_types": "(removed)"}),
        ({"layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}, {"full_attention_interval": 3, "layer_types": "(removed)"}),
        ({"layer_types": None}, {"layer_types": "(removed)"}), ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0}}),
        ({}, {"partial_rotary_factor": 0.25, "rope_parameters": "(removed)", "rope_theta": 5000.0}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True}}),
        ({}, {"attn_output_gate": False}), ({}, {"full_attention_interval": 4, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1}),
        ({}, {"norm_topk_prob": False}), ({}, {"num_experts_per_tok": 1}), ({}, {"decoder_sparse_step": 2}), ({}, {"mlp_only_layers": [1]}),
        *(({}, rope) for rope in ROPES),
    ]},
    "olmo_hybrid": {"base": {
        "hidden_size": 32, "num_hidden_layers": 3, "max_position_embeddings": 64, "intermediate_size": 40, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 12, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": None}, "pad_token_id": None,
    }, "old_ropes": {}, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"linear_allow_neg_eigval": False},
        {"linear_num_key_heads": 4}, {"linear_value_head_dim": 8}, {"linear_value_head_dim": None}, {"linear_key_head_dim": None}, {"linear_conv_kernel_dim": 3},
        {"layer_types": None}, {"layer_types": None, "num_hidden_layers": 5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"linear_allow_neg_eigval": False}), ({}, {"linear_allow_neg_eigval": None}),
        ({}, {"rope_parameters": "(removed)"}), ({}, {"rope_parameters": "(removed)", "rope_theta": None}), ({}, {"rope_parameters": "(removed)", "rope_theta": 300.0}),
        ({}, {"rope_parameters": None}), ({}, {"rope_parameters": {"rope_type": "default"}}), ({}, {"rope_parameters": {"rope_type": "default"}, "rope_theta": None}),
        ({}, {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}}), ({}, {"rope_parameters": "(removed)", "rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
        ({}, {"sliding_window": 4}), ({}, {"head_dim": 16}),
    ]},
    "granitemoehybrid": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_experts_per_tok": 2, "num_local_experts": 6,
        "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 12, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_chunk_size": 16, "intermediate_size": 24, "shared_intermediate_size": 20,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"], "embedding_multiplier": 3.0,
        "logits_scaling": 2.5, "residual_multiplier": 0.7, "attention_multiplier": 0.4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"mamba_d_head": "auto"}, {"mamba_n_groups": 1},
        {"mamba_n_groups": 4}, {"mamba_d_conv": 3}, {"mamba_conv_bias": False}, {"mamba_proj_bias": True}, {"attention_bias": True},
        {"num_local_experts": 0}, {"num_local_experts": 0, "num_experts_per_tok": 0}, {"shared_intermediate_size": 0}, {"head_dim": 12},
        {"mamba_expand": 3, "mamba_n_heads": 12},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"}),
        ({}, {"mamba_d_head": "auto"}), ({}, {"mamba_chunk_size": 8}), ({}, {"time_step_limit": [0.1, 0.4]}), ({}, {"time_step_limit": None}),
        ({}, {"time_step_limit": [0.2, float("inf")]}), ({"num_key_value_heads": 4}, {"num_key_value_heads": None}),
        ({"num_key_value_heads": 4}, {"num_key_value_heads": "(removed)"}), ({}, {"position_embedding_type": "rope"}),
        ({}, {"position_embedding_type": "nope"}), ({}, {"position_embedding_type": None}), ({}, {"position_embedding_type": "alibi"}),
        ({"num_local_experts": 0}, {"num_local_experts": None}), ({}, {"num_experts_per_tok": 1}),
        ({}, {"layer_types": ["mamba", "attention", "mamba", "attention"]}),
        ({}, {"layer_types": "(removed)", "layers_block_type": ["linear_attention", "full_attention", "linear_attention", "full_attention"]}),
        ({}, {"layer_types": "(removed)", "layers_block_type": ["mamba", "attention", "mamba", "attention"]}),
        ({"layer_types": None}, {"layer_types": "(removed)"}), ({}, {"num_experts": 6, "num_local_experts": "(removed)"}),
        ({}, {"norm_topk_prob": False}),
        ({}, {"init_method": "mup", "normalization_function": "rmsnorm", "rope_scaling": None, "rope_theta": 10000}),
    ]},
    "falcon_h1": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 2, "max_position_embeddings": 64, "mamba_n_heads": 8, "mamba_d_head": 8,
        "mamba_n_groups": 2, "mamba_d_state": 12, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_d_ssm": 64,
        "intermediate_size": 40, "embedding_multiplier": 2.0, "lm_head_multiplier": 0.3, "key_multiplier": 0.6, "attention_in_multiplier": 1.3,
        "attention_out_multiplier": 0.8, "ssm_in_multiplier": 0.9, "ssm_out_multiplier": 0.5, "mlp_multipliers": [0.7, 0.4],
        "ssm_multipliers": [0.3, 0.4, 0.5, 0.6, 0.7], "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"head_dim": 12}, {"mamba_d_head": "auto"},
        {"mamba_n_groups": 1}, {"mamba_n_groups": 4}, {"mamba_d_conv": 3}, {"mamba_conv_bias": False}, {"mamba_proj_bias": True},
        {"attention_bias": True}, {"mamba_d_ssm": None}, {"mamba_d_ssm": 32, "mamba_n_heads": 4}, {"mamba_rms_norm": True},
        {"mamba_rms_norm": True, "mamba_norm_before_gate": False}, {"mamba_norm_before_gate": False}, {"projectors_bias": True}, {"mlp_bias": True},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"}),
        ({}, {"mamba_d_head": "auto"}), ({}, {"mamba_chunk_size": 8}), ({}, {"time_step_limit": [0.1, 0.4]}), ({}, {"time_step_limit": None}),
        ({}, {"time_step_limit": [0.2, float("inf")]}), ({"num_key_value_heads": 4}, {"num_key_value_heads": None}),
        ({"num_key_value_heads": 4}, {"num_key_value_heads": "(removed)"}), ({}, {"mamba_d_ssm": None}), ({}, {"mlp_multipliers": None}),
        ({}, {"ssm_multipliers": None}), ({}, {"embedding_multiplier": 2}),
        ({}, {"mamba_use_mlp": True, "mlp_expansion_factor": 8, "ssm_cfg": None}), *(({}, rope) for rope in ROPES),
    ]},
    "nemotron_h": {"base": {
        "hidden_size": 32, "head_dim": 8, "max_position_embeddings": 64, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "moe_shared_expert_intermediate_size": 24,
        "intermediate_size": 40, "ssm_state_size": 12, "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "conv_kernel": 4, "chunk_size": 16,
        "n_group": 2, "topk_group": 1, "time_step_min": 0.05, "num_hidden_layers": "(removed)",
    }, "cases": [
        {"num_key_value_heads": 1}, {"tie_word_embeddings": True}, {"head_dim": 12}, {"attention_bias": True}, {"mlp_bias": True},
        {"use_bias": True}, {"use_conv_bias": False}, {"conv_kernel": 3}, {"n_groups": 4}, {"n_groups": 1}, {"moe_latent_size": 16},
        {"layers_block_type": ["mlp", "full_attention", "linear_attention", "linear_attention", "moe"]},
    ], "edits": [
        ({}, {"layer_norm_epsilon": 0.3}), ({}, {"norm_eps": 0.2, "rms_norm_eps": 0.3}), ({}, {"mlp_hidden_act": "silu"}),
        ({}, {"mamba_hidden_act": "gelu"}), ({}, {"hidden_act": "gelu"}), ({}, {"sliding_window": 8}), ({}, {"mamba_proj_bias": True}),
        ({}, {"expand": 4}), ({}, {"time_step_limit": [0.1, 0.4]}), ({}, {"time_step_min": 0.3}),
        ({}, {"time_step_floor": 0.1, "time_step_max": 0.2}),
        ({}, {"chunk_size": "(removed)", "conv_kernel": "(removed)", "mamba_chunk_size": 16, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_dt_min": 0.05, "mamba_n_groups": 2, "n_groups": "(removed)", "time_step_min": "(removed)", "use_conv_bias": "(removed)"}),
        ({}, {"hybrid_override_pattern": "ME*-", "layers_block_type": "(removed)", "num_hidden_layers": 4}),
        ({}, {"hybrid_override_pattern": "MM*-"}), ({}, {"layers_block_type": ["mamba", "moe", "attention", "mlp"]}),
        ({}, {"layer_types": ["linear_attention", "moe", "full_attention", "mlp"], "layers_block_type": "(removed)"}),
        ({}, {"layer_types": "(removed)", "layers_block_type": "(removed)"}), ({}, {"n_shared_experts": 2}), ({}, {"routed_scaling_factor": 2.5}),
        ({}, {"norm_topk_prob": False}), ({}, {"n_group": 4, "topk_group": 2}), ({}, {"residual_in_fp32": True}), ({}, {"num_hidden_layers": 52}),
        ({}, {"num_hidden_layers": "(removed)"}), ({}, {"n_routed_experts": "(removed)", "num_local_experts": 8}),
    ]},
    "mamba": {"base": {
        "hidden_size": 32, "num_hidden_layers": 2, "state_size": 12, "expand": 2, "conv_kernel": 4, "num_key_value_heads": "(removed)",
        "num_attention_heads": "(removed)", "intermediate_size": "(removed)",
    }, "cases": [
        {"tie_word_embeddings": False}, {"use_bias": True}, {"use_conv_bias": False}, {"conv_kernel": 3}, {"state_size": 3}, {"time_step_rank": 5},
        {"expand": 3},
    ], "edits": [
        ({}, {"layer_norm_epsilon": 0.3}), ({}, {"rms_norm_eps": 0.3}), ({}, {"time_step_floor": 0.2, "time_step_max": 0.5, "time_step_min": 0.3}),
        ({}, {"hidden_act": "gelu"}), ({}, {"residual_in_fp32": False}), ({}, {"rms_norm": False}), ({}, {"intermediate_size": 64}),
        ({}, {"expand": 16, "intermediate_size": 64}), ({}, {"time_step_rank": "auto"}), ({}, {"n_layer": 1}), ({}, {"d_inner": 32}),
    ]},
    "falcon_mamba": {"base": {
        "hidden_size": 32, "num_hidden_layers": 2, "state_size": 12, "expand": 2, "conv_kernel": 4, "num_key_value_heads": "(removed)",
        "num_attention_heads": "(removed)", "intermediate_size": "(removed)",
    }, "cases": [
        {"tie_word_embeddings": False}, {"use_bias": True}, {"use_conv_bias": False}, {"conv_kernel": 3}, {"state_size": 3}, {"time_step_rank": 5},
        {"mixer_rms_eps": 0.2}, {"expand": 3},
    ], "edits": [
        ({}, {"layer_norm_epsilon": 0.3}), ({}, {"mixer_rms_eps": 0.3}), ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}),
        ({}, {"expand": 16, "intermediate_size": 64}), ({}, {"use_falcon_mambapy": True}),
    ]},
    "recurrent_gemma": {"base": {
        "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 32,
        "attention_window_size": 16, "conv1d_width": 4, "max_position_embeddings": "(removed)",
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
    }, "cases": [
        {"num_key_value_heads": 2}, {"num_key_value_heads": 4}, {"tie_word_embeddings": False}, {"attention_bias": True}, {"conv1d_width": 3},
        {"attention_window_size": 3}, {"logits_soft_cap": 2.0}, {"block_types": ["attention", "recurrent"]}, {"block_types": ["recurrent"]},
        {"num_attention_heads": 2}, {"intermediate_size": 41},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_activation": "gelu"}), ({}, {"hidden_act": "gelu"}), ({}, {"partial_rotary_factor": 0.25}),
        ({}, {"sliding_window": 4}), ({}, {"head_dim": 8}), ({}, {"layer_types": ["linear_attention"] * 4}), ({}, {"block_types": ["recurrent", "mamba"]}),
        ({}, {"embeddings_scale_by_sqrt_dim": False}), ({}, {"lru_width": 64}), *(({}, rope) for rope in ROPES),
    ]},
    "jamba": {"base": {
        "hidden_size": 32, "num_hidden_layers": 4, "max_position_embeddings": 64, "intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2,
        "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 12, "mamba_d_conv": 4,
        "mamba_expand": 2,
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"mamba_proj_bias": True}, {"mamba_conv_bias": False},
        {"mamba_d_conv": 3}, {"mamba_d_state": 3}, {"mamba_dt_rank": 5}, {"mamba_expand": 3}, {"num_experts": 1}, {"expert_layer_period": 1, "expert_layer_offset": 0},
        {"attn_layer_period": 1, "attn_layer_offset": 0}, {"attn_layer_period": 8, "attn_layer_offset": 5}, {"head_dim": 12},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"layer_norm_epsilon": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"sliding_window": 8}), ({}, {"norm_topk_prob": True}),
        ({}, {"num_experts_per_tok": 1}), ({}, {"num_experts_per_tok": 6}), ({}, {"num_experts": "(removed)", "num_local_experts": 4}),
        ({}, {"attn_layer_offset": 4}), ({}, {"expert_layer_offset": 2}), ({}, {"attn_layer_offset": 0}), ({}, {"mamba_dt_rank": "auto"}),
        ({}, {"mamba_inner_layernorms": False}), ({}, {"use_mamba_kernels": False}),
    ]},
    "mamba2": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 2, "num_heads": 8, "state_size": 12, "n_groups": 2, "expand": 2, "conv_kernel": 4,
        "chunk_size": 16, "num_key_value_heads": "(removed)", "num_attention_heads": "(removed)", "intermediate_size": "(removed)",
    }, "cases": [
        {"tie_word_embeddings": True}, {"use_bias": True}, {"use_conv_bias": False}, {"conv_kernel": 3}, {"n_groups": 1}, {"n_groups": 4},
        {"expand": 1, "num_heads": 4},
    ], "edits": [
        ({}, {"layer_norm_epsilon": 0.3}), ({}, {"rms_norm_eps": 0.3}), ({}, {"time_step_limit": [0.1, 0.4]}),
        ({}, {"time_step_floor": 0.2, "time_step_max": 0.5, "time_step_min": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"residual_in_fp32": False}),
        ({}, {"norm_before_gate": True}), ({}, {"rms_norm": False}), ({}, {"chunk_size": 7}), ({}, {"intermediate_size": 64}), ({}, {"n_layer": 1}),
    ]},
    "lfm3": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 5, "max_position_embeddings": 64, "intermediate_size": 40, "sliding_window": 8,
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": False}, {"head_dim": 12}, {"conv_bias": True}, {"conv_L_cache": 4},
        {"attention_bias": True}, {"use_sandwich_norm": False}, {"use_attention_gate": False}, {"layer_types": ["full_attention", "conv", "conv", "sliding_attention", "conv"]},
        {"layer_types": ["conv"] * 5}, {"head_dim": 16, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0}, "sliding_attention": {"rope_type": "proportional", "rope_theta": 90.0, "partial_rotary_factor": 0.25}}},
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 300.0}, "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 90.0}}},
    ], "edits": [
        ({}, {"norm_eps": 0.3}), ({}, {"rms_norm_eps": 0.3, "norm_eps": "(removed)"}), ({}, {"hidden_act": "gelu"}), ({}, {"sliding_window": 3}), ({}, {"layer_types": "(removed)"}), ({}, {"tie_embedding": False}),
        ({}, {"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 300.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}}),
        ({}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}}),
        ({}, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0}}}), ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}),
    ]},
    "lfm2": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 4, "max_position_embeddings": 64, "intermediate_size": 40,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"], "block_multiple_of": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "conv_L_cache": 3,
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"head_dim": 12}, {"tie_word_embeddings": False},
        {"block_auto_adjust_ff_dim": False}, {"block_ffn_dim_multiplier": 1.3}, {"block_multiple_of": 8}, {"intermediate_size": 41},
        {"conv_bias": True}, {"conv_L_cache": 4},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"norm_eps": 0.3}), ({}, {"block_norm_eps": 0.3}),
        ({"tie_word_embeddings": False}, {"tie_embedding": False, "tie_word_embeddings": "(removed)"}),
        ({}, {"tie_embedding": True, "tie_word_embeddings": False}),
        ({"tie_word_embeddings": False}, {"tie_embedding": False, "tie_word_embeddings": True}),
        ({"block_ffn_dim_multiplier": 1.0}, {"block_ffn_dim_multiplier": None}), ({}, {"block_ff_dim": 40, "intermediate_size": "(removed)"}),
        ({}, {"block_ff_dim": 40, "intermediate_size": 88}), ({"layer_types": None, "full_attn_idxs": [1, 2]}, {"layer_types": "(removed)"}),
        ({"layer_types": None}, {"full_attn_idxs": "(removed)", "layer_types": "(removed)"}), ({}, {"full_attn_idxs": [0]}),
        ({}, {"layer_types": ["short_conv", "full_attention", "short_conv", "full_attention"]}),
        ({}, {"rope_parameters": "(removed)", "theta": 300.0}), ({}, {"rope_parameters": "(removed)", "rope_theta": 300.0}),
        ({}, {"block_dim": 32, "block_mlp_init_scale": 1.0, "block_out_init_scale": 1.0, "block_use_swiglu": True, "block_use_xavier_init": True, "conv_dim": 32, "conv_use_xavier_init": True, "num_heads": 4, "use_pos_enc": True}),
        *(({}, rope) for rope in ROPES),
    ]},
    "kimi_linear": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_key_value_heads": 4, "q_lora_rank": None,
        "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
        "intermediate_size": 40, "num_local_experts": 8, "linear_head_dim": 8, "linear_num_heads": 4, "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "n_group": 2, "topk_group": 1,
    }, "cases": [
        {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"q_lora_rank": None}, {"attention_bias": True},
        {"attention_bias": True, "q_lora_rank": None}, {"v_head_dim": 16}, {"n_shared_experts": 2}, {"n_shared_experts": 3}, {"n_shared_experts": 0},
        {"q_lora_rank": 20}, {"layer_types": ["full_attention", "full_attention", "linear_attention", "linear_attention"]},
        {"layer_types": None, "num_hidden_layers": 5, "mlp_layer_types": None}, {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]},
        {"linear_conv_kernel_dim": 3}, {"linear_num_heads": 2},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"num_key_value_heads": 1}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}),
        ({}, {"hidden_act": "relu"}), ({}, {"routed_scaling_factor": 3.3}), ({}, {"norm_topk_prob": True}), ({}, {"norm_topk_prob": False}),
        ({"n_shared_experts": 0}, {"n_shared_experts": None}), ({}, {}), ({}, {"num_experts": "(removed)", "num_local_experts": 8}),
        ({}, {"head_dim": 24}), ({}, {"num_key_value_heads": 2}),
        ({}, {"first_k_dense_replace": 1, "layer_types": "(removed)", "linear_attn_config": {"full_attn_layers": [2, 4], "kda_layers": [1, 3], "head_dim": 8, "num_heads": 4, "short_conv_kernel_size": 4}, "linear_conv_kernel_dim": "(removed)", "linear_head_dim": "(removed)", "linear_num_heads": "(removed)", "mlp_layer_types": "(removed)", "moe_layer_freq": 1}),
        ({}, {"mla_use_nope": True, "moe_router_activation_func": "sigmoid", "use_grouped_topk": True}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
    ]},
    # Where the last group of layers is not whole, published code and transformers differ; the latter reads tie_word_embeddings and ties nothing.
    "bailing_hybrid": {"base": {
        "hidden_size": 32, "head_dim": 12, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_key_value_heads": 4, "q_lora_rank": None, "bos_token_id": 1,
        "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
        "intermediate_size": 40, "num_local_experts": 8, "n_group": 2, "topk_group": 1, "layer_group_size": 2, "first_k_dense_replace": 1, "rope_theta": 5000.0,
    }, "old_ropes": {}, "cases": [
        {"q_lora_rank": 20}, {"v_head_dim": 16}, {"n_shared_experts": 2}, {"short_conv_kernel_size": 3}, {"head_dim": 8}, {"head_dim": 32}, {"kda_safe_gate": False}, {"kda_lower_bound": -1.5},
        {"layer_types": ["full_attention", "full_attention", "linear_attention", "linear_attention"]}, {"layer_group_size": 4}, {"layer_group_size": 3, "num_hidden_layers": 3},
        {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]}, {"first_k_dense_replace": 0}, {"attention_bias": True}, {"attention_bias": True, "q_lora_rank": 20}, {"norm_topk_prob": False},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"routed_scaling_factor": 3.3}), ({}, {"kda_lower_bound": -2.0}), ({}, {"kda_safe_gate": False}),
        ({}, {"moe_renormalize": False}), ({}, {"num_experts": "(removed)", "num_local_experts": 8}),
        ({}, {"head_dim": 12, "linear_head_dim": "(removed)", "linear_num_heads": "(removed)", "linear_conv_kernel_dim": "(removed)", "layer_types": "(removed)", "mlp_layer_types": "(removed)"}),
        ({}, {"num_expert_group": 4, "topk_group": 2}), ({}, {"num_experts_per_token": 2}), ({}, {"partial_rotary_factor": 0.5, "rotary_dim": 4}),
        ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}}), ({}, {"rope_parameters": "(removed)"}),
        ({}, {"rope_parameters": "(removed)", "rope_theta": 300.0}), ({}, {"group_norm_size": 1, "no_kda_lora": True, "gated_attention_proj_granularity_type": "head_wise"}),
        *(({}, rope) for rope in ROPES),
    ]},
    "minimax": {"base": {
        "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_experts_per_tok": 2, "num_local_experts": 6,
        "intermediate_size": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "full_attn_alpha_factor": 1.3,
        "full_attn_beta_factor": 0.7, "block_size": 16, "linear_attn_alpha_factor": 1.2, "linear_attn_beta_factor": 0.8, "mlp_alpha_factor": 1.1,
        "mlp_beta_factor": 0.9, "layer_types": ["linear_attention", "full_attention", "full_attention", "linear_attention"],
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}, {"head_dim": 12},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"hidden_act": "gelu_pytorch_tanh"}), ({}, {"hidden_act": "relu"}),
        ({}, {"sliding_window": 8}), ({}, {"block_size": 7}), ({"layer_types": None}, {"layer_types": "(removed)"}),
        ({}, {"attn_type_list": [0, 1, 1, 0], "layer_types": "(removed)"}), ({}, {"norm_topk_prob": False}), ({}, {"mlp_alpha_factor": 2}),
        ({}, {"layernorm_full_attention_alpha": 3.55, "postnorm": True, "rotary_dim": 4, "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid"}),
        *(({}, rope) for rope in ROPES),
    ]},
    # Where windows see all, one of the tokens multiplies what rounding does by some hundreds.
    "lara_mini": {"base": {
        "hidden_size": 32, "head_dim": 12, "num_hidden_layers": 4, "max_position_embeddings": 64, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
        "shared_expert_intermediate_size": 24, "intermediate_size": "(removed)", "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 12, "sliding_window": 8, "layer_types": ["linear_attention", "full_attention", "sliding_attention", "linear_attention"],
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": False}, {"attention_bias": True}, {"head_dim": 16}, {"linear_conv_kernel_dim": 3},
        {"linear_num_value_heads": 2}, {"linear_value_head_dim": 8}, {"layer_types": None, "num_hidden_layers": 6},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "gelu"}), ({}, {"norm_topk_prob": False}), ({}, {"sliding_window": 3}), *(({}, rope) for rope in ROPES),
    ]},
    # 1.2B's adapters of q, k and v are refused, and what stretches rope.
    "zamba2": {"base": {
        "hidden_size": 32, "num_hidden_layers": 5, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"], "max_position_embeddings": 64,
        "mamba_d_state": 12, "n_mamba_heads": 4, "num_mem_blocks": 2, "adapter_rank": 10, "use_mem_rope": True,
    }, "cases": [
        {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"tie_word_embeddings": False}, {"use_mem_rope": False}, {"num_mem_blocks": 1}, {"num_mem_blocks": 3},
        {"mamba_ngroups": 2}, {"mamba_expand": 3, "n_mamba_heads": 6}, {"add_bias_linear": True}, {"mamba_d_conv": 3}, {"num_attention_heads": 8}, {"intermediate_size": None},
    ], "edits": [
        ({}, {"rms_norm_eps": 0.3}), ({}, {"hidden_act": "silu"}), ({}, {"time_step_min": 0.9}), ({}, {"time_step_limit": [0.5, 1.0]}), ({}, {"mamba_headdim": 4}),
        ({}, {"attention_head_dim": 4}), ({}, {"head_dim": 4}), ({}, {"layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]}),
        *(({}, rope) for rope in ROPES),
    ]},
}
