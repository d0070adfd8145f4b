"""Writes the folders of the families below: small random models, and what transformers computes of them in float32.

    pip install transformers==5.24.0 torch && python make_families.py [NAME ...]

config.json is spelled as published checkpoints spell it; config_v5.json as transformers 5 writes it. Tensors have their published names and shapes.
"""
import copy
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).parent
STEPS = 20
COMMON = dict(vocab_size=320, hidden_size=32, num_hidden_layers=2, max_position_embeddings=512, rms_norm_eps=1e-3, tie_word_embeddings=False,
              bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=True)
# Heads of 16, two for each of keys.
GROUPED = dict(intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
# The same where their size follows from the width.
DERIVED = dict(intermediate_size=64, num_attention_heads=2, num_key_value_heads=1)
LATENT = dict(num_attention_heads=2, num_key_value_heads=2, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32)
DEFAULT = dict(rope_type='default')
TEMPERED = dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0,
                llama_4_scaling_beta=0.5)
YARN = dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=128, mscale=1.0, beta_fast=32.0, beta_slow=1.0)
LONGROPE = dict(rope_type='longrope', short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0], long_factor=[1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 12.0],
                original_max_position_embeddings=64)
# Nothing of COMMON but tokens; what most of those do without; names of GPT-2's.
NOTHING = dict(hidden_size=None, num_hidden_layers=None, max_position_embeddings=None, rms_norm_eps=None)
SMALL = dict(vocab_size=128, rms_norm_eps=None)
NARROW = dict(NOTHING, vocab_size=128, n_embd=32, n_layer=2, n_head=2, n_positions=512)
PLAIN = dict(rms_norm_eps=None)

# Classes whose text has none of its own: their towers.
OUTER = {
    'Glm5Next': dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=16, image_size=28, projection_intermediate_size=16),
    'DeepseekOcr2': dict(sam_config=dict(hidden_size=16, output_channels=8, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14, downsample_channels=[8, 16],
                                         global_attn_indexes=[0], window_size=2),
                         encoder_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, vocab_size=8)),
    'MuseGlimmer': dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2),
    'MistralLarge4': dict(model_type='pixtral', hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14),
}

# Of each: its classes' name before ForCausalLM, its keys, its rotary embedding (a base and a scaling), and keys that published files have besides, or do not
# have (None).
FAMILIES = {
    'glm4_moe_lite': ('Glm4MoeLite', dict(LATENT, intermediate_size=64, moe_intermediate_size=32, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
                                          routed_scaling_factor=1.8, tie_word_embeddings=True),
                      dict(DEFAULT, rope_theta=1000000.0), dict(mlp_layer_types=None, first_k_dense_replace=1, topk_method='noaux_tc', partial_rotary_factor=1.0)),
    'minicpm3': ('MiniCPM3', dict(LATENT, intermediate_size=64, v_head_dim=None, scale_emb=12, scale_depth=1.4, dim_model_base=256, tie_word_embeddings=True),
                 dict(LONGROPE, rope_theta=10000.0), dict(v_head_dim=None, qk_head_dim=None, head_dim=None)),
    'lfm2_moe': ('Lfm2Moe', dict(DERIVED, moe_intermediate_size=32, num_hidden_layers=3, num_dense_layers=2, num_experts=4, num_experts_per_tok=2, norm_eps=1e-3,
                                 layer_types=['conv', 'full_attention', 'conv'], routed_scaling_factor=1.0, tie_word_embeddings=True),
                 dict(DEFAULT, rope_theta=1000000.0), dict(rms_norm_eps=None)),
    'lfm3': ('Lfm3', dict(DERIVED, vocab_size=128, head_dim=16, intermediate_size=16, num_hidden_layers=3, norm_eps=1e-3, rms_norm_eps=None, sliding_window=32,
                          layer_types=['conv', 'sliding_attention', 'full_attention'], tie_word_embeddings=True),
             dict(sliding_attention=dict(rope_type='default', rope_theta=10000.0),
                  full_attention=dict(rope_type='proportional', rope_theta=1000000.0, partial_rotary_factor=0.5)), {}),
    'olmoe': ('Olmoe', dict(DERIVED, intermediate_size=32, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=None, num_hidden_layers=1, tie_word_embeddings=True),
              dict(DEFAULT, rope_theta=10000.0), {}),
    'seed_oss': ('SeedOss', dict(GROUPED, num_hidden_layers=1, attention_bias=True, attention_out_bias=False, mlp_bias=False, attention_dropout=0.1, residual_dropout=0.1),
                 dict(DEFAULT, rope_theta=10000000.0), {}),
    'ernie4_5': ('Ernie4_5', dict(GROUPED, num_hidden_layers=1, use_bias=False, tie_word_embeddings=True), dict(DEFAULT, rope_theta=500000.0), {}),
    'ernie4_5_moe': ('Ernie4_5_Moe', dict(DERIVED, moe_intermediate_size=32, moe_num_experts=4, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1,
                                          moe_layer_interval=1, tie_word_embeddings=True),
                     dict(DEFAULT, rope_theta=500000.0), dict(moe_use_aux_free=True)),
    'granitemoe': ('GraniteMoe', dict(DERIVED, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=6.0, logits_scaling=3.0,
                                      residual_multiplier=0.5, attention_multiplier=0.3, num_hidden_layers=1, tie_word_embeddings=True),
                   dict(DEFAULT, rope_theta=10000.0), {}),
    'granite_swa': ('GraniteSWA', dict(DERIVED, vocab_size=128, intermediate_size=32, embedding_multiplier=6.0, logits_scaling=3.0, residual_multiplier=0.5, attention_multiplier=0.3, sliding_window=32,
                                       layer_types=['sliding_attention', 'full_attention'], layer_rope_theta=[50000.0, 0], tie_word_embeddings=True),
                    dict(DEFAULT, rope_theta=10000.0), {}),
    'granitemoe_swa': ('GraniteMoeSWA', dict(DERIVED, vocab_size=128, intermediate_size=16, num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=16,
                                             embedding_multiplier=6.0, logits_scaling=3.0, residual_multiplier=0.5, attention_multiplier=0.3, sliding_window=32,
                                             layer_types=['full_attention', 'sliding_attention'], layer_rope_theta=[100000.0, 500.0], tie_word_embeddings=True),
                       dict(DEFAULT, rope_theta=10000.0), {}),
    'sarvam_moe': ('SarvamMoE', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, intermediate_size=32, moe_intermediate_size=16, n_routed_experts=3,
                                     n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=0, routed_scaling_factor=2.5),
                   dict(DEFAULT, rope_theta=8000000.0), dict(n_routed_experts=None, n_shared_experts=None, attention_bias=None, num_experts=3, num_shared_experts=1,
                                                             use_qkv_bias=False, partial_rotary_factor=None)),
    'sarvam_mla': ('SarvamMLA', dict(LATENT, vocab_size=128, num_hidden_layers=1, q_lora_rank=None, intermediate_size=32, moe_intermediate_size=16, n_routed_experts=3, n_shared_experts=1,
                                     num_experts_per_tok=2, first_k_dense_replace=0, tie_word_embeddings=True),
                   dict(YARN, mscale_all_dim=1.0, rope_theta=10000.0), dict(n_routed_experts=None, n_shared_experts=None, num_experts=3, num_shared_experts=1, head_dim=48)),
    'axk1': ('AXK1', dict(LATENT, vocab_size=128, num_hidden_layers=1, intermediate_size=32, moe_intermediate_size=16, n_routed_experts=4, n_shared_experts=1, n_group=2,
                          topk_group=1, num_experts_per_tok=2, v_head_dim=16, mlp_layer_types=['sparse'], tie_word_embeddings=True),
             dict(DEFAULT, rope_theta=10000.0), dict(mlp_layer_types=None, first_k_dense_replace=0, moe_layer_freq=1, scoring_func='sigmoid')),
    'iquestcoder': ('IQuestCoder', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, intermediate_size=32), dict(DEFAULT, rope_theta=500000.0), {}),
    'ministral3': ('Ministral3', dict(GROUPED, sliding_window=None, tie_word_embeddings=True), dict(TEMPERED, rope_theta=1000000.0), {}),
    'mistral4': ('Mistral4', dict(LATENT, intermediate_size=64, moe_intermediate_size=32, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
                                  first_k_dense_replace=0, num_hidden_layers=1, tie_word_embeddings=True),
                 dict(TEMPERED, rope_theta=10000.0, partial_rotary_factor=0.5), {}),
    'cohere': ('Cohere', dict(DERIVED, num_hidden_layers=1, logit_scale=0.25, layer_norm_eps=1e-3, tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0),
               dict(rms_norm_eps=None)),
    'cohere_plus': ('Cohere', dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=64, vocab_size=128, intermediate_size=32,
                                   num_hidden_layers=1, logit_scale=0.25, layer_norm_eps=1e-3, use_qk_norm=True, tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0),
                    dict(rms_norm_eps=None)),
    'dots1': ('Dots1', dict(DERIVED, moe_intermediate_size=32, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=0,
                            num_hidden_layers=1, norm_topk_prob=True, routed_scaling_factor=2.5, sliding_window=None, tie_word_embeddings=True),
              dict(DEFAULT, rope_theta=10000.0), dict(scoring_func='noaux_tc')),
    'exaone_moe': ('ExaoneMoe', dict(DERIVED, moe_intermediate_size=32, num_experts=4, num_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1,
                                     sliding_window=32, sliding_window_pattern='LG', layer_types=['sliding_attention', 'full_attention'],
                                     tie_word_embeddings=True),
                   dict(DEFAULT, rope_theta=1000000.0), dict(mlp_layer_types=None, head_dim=None)),
    'opt_350m': ('OPT', dict(SMALL, max_position_embeddings=176, ffn_dim=64, num_attention_heads=2, do_layer_norm_before=False, word_embed_proj_dim=16, activation_function='relu',
                             tie_word_embeddings=True), None, PLAIN),
    'falcon': ('Falcon', dict(SMALL, ffn_hidden_size=64, num_attention_heads=2, num_kv_heads=2, tie_word_embeddings=True),
               dict(DEFAULT, rope_theta=10000.0), dict(PLAIN, num_kv_heads=None)),
    'falcon_40b': ('Falcon', dict(SMALL, hidden_size=64, num_hidden_layers=1, ffn_hidden_size=48, num_attention_heads=4, num_kv_heads=2,
                                  new_decoder_architecture=True, tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0), PLAIN),
    'falcon_rw': ('Falcon', dict(SMALL, ffn_hidden_size=64, num_attention_heads=2, num_kv_heads=2, alibi=True, bias=True, multi_query=False,
                                 parallel_attn=False, tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0), dict(PLAIN, num_kv_heads=None)),
    'gptj': ('GPTJ', dict(NARROW, n_inner=64, rotary_dim=8), None, PLAIN),
    'codegen': ('CodeGen', dict(NARROW, n_layer=1, n_inner=64, rotary_dim=8), None, PLAIN),
    'gpt_bigcode': ('GPTBigCode', dict(NARROW, n_inner=64, n_positions=176, tie_word_embeddings=True), None, PLAIN),
    'gpt_bigcode_mha': ('GPTBigCode', dict(NARROW, n_layer=1, n_inner=64, n_positions=176, multi_query=False, tie_word_embeddings=True), None, PLAIN),
    'bloom': ('Bloom', dict(SMALL, num_hidden_layers=None, n_layer=1, n_head=2, seq_length=512, max_position_embeddings=None, tie_word_embeddings=True), None,
              PLAIN),
    'mpt': ('Mpt', dict(NOTHING, d_model=32, n_heads=2, n_layers=1, max_seq_len=512, vocab_size=128,
                        attn_config=dict(alibi=True, attn_impl='torch'), tie_word_embeddings=True), None, PLAIN),
    'arcee': ('Arcee', dict(GROUPED, vocab_size=128, num_hidden_layers=1), dict(YARN, rope_theta=10000.0), {}),
    'phi': ('Phi', dict(DERIVED, vocab_size=128, rms_norm_eps=None, layer_norm_eps=1e-3),
            dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5), PLAIN),
    'nemotron': ('Nemotron', dict(GROUPED, vocab_size=128, rms_norm_eps=None, norm_eps=1e-3, num_hidden_layers=1),
                 dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5), PLAIN),
    'olmo': ('Olmo', dict(DERIVED, vocab_size=128, rms_norm_eps=None, clip_qkv=1.5), dict(DEFAULT, rope_theta=10000.0), PLAIN),
    'stablelm': ('StableLm', dict(DERIVED, vocab_size=128, rms_norm_eps=None, layer_norm_eps=1e-3, use_qkv_bias=True),
                 dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5), PLAIN),
    'stablelm_12b': ('StableLm', dict(DERIVED, vocab_size=128, rms_norm_eps=None, num_key_value_heads=2, num_hidden_layers=1, layer_norm_eps=1e-3, use_parallel_residual=True,
                                      qk_layernorm=True),
                     dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5), PLAIN),
    'hunyuan_v1_dense': ('HunYuanDenseV1', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, tie_word_embeddings=True),
                         dict(rope_type='dynamic', alpha=1000.0, factor=1.0, rope_theta=10000.0), dict(use_qk_norm=True, use_cla=False)),
    'hunyuan_v1_moe': ('HunYuanMoEV1', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, intermediate_size=32, num_experts=4, moe_topk=2,
                                            tie_word_embeddings=True),
                       dict(rope_type='dynamic', alpha=1000.0, factor=1.0, rope_theta=10000.0),
                       dict(use_qk_norm=True, use_cla=False, moe_topk=[2], num_shared_expert=[1], moe_intermediate_size=[32], moe_layer_num_skipped=0)),
    'dbrx': ('Dbrx', dict(NOTHING, vocab_size=128, d_model=32, n_layers=1, n_heads=2, max_seq_len=512,
                          attn_config=dict(clip_qkv=1.5, kv_n_heads=1, rope_theta=500000.0), ffn_config=dict(ffn_hidden_size=32, moe_num_experts=4, moe_top_k=2)),
             dict(DEFAULT, rope_theta=500000.0), dict(rope_theta=None, rope_scaling=None, rms_norm_eps=None)),
    'apertus': ('Apertus', dict(DERIVED, vocab_size=128), dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                               original_max_position_embeddings=64, rope_theta=12000000.0),
                dict(mlp_bias=False, post_norm=False, qk_norm=True)),
    'phimoe': ('Phimoe', dict(DERIVED, vocab_size=128, num_hidden_layers=1, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2,
                              router_jitter_noise=0.3, attention_bias=True, lm_head_bias=True),
               dict(LONGROPE, original_max_position_embeddings=256, short_mscale=1.2, long_mscale=1.2, rope_theta=10000.0), dict(input_jitter_noise=0.01)),
    'glm': ('Glm', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1), dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5), {}),
    'cwm': ('Cwm', dict(DERIVED, vocab_size=128, head_dim=16, sliding_window=32, layer_types=['full_attention', 'sliding_attention']),
            dict(rope_type='llama3', factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64, rope_theta=1000000.0), {}),
    'internlm3': ('InternLM3', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, attention_bias=True, mlp_bias=True),
                  dict(rope_type='dynamic', factor=6.0, rope_theta=50000000.0), dict(attention_bias=None, mlp_bias=None, qkv_bias=True, bias=True)),
    'hyperclovax': ('HyperCLOVAX', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, embedding_multiplier=4.0, logits_scaling=0.5, residual_multiplier=0.7,
                                        attention_multiplier=0.3), dict(DEFAULT, rope_theta=100000000.0), {}),
    'flex_olmo': ('FlexOlmo', dict(DERIVED, vocab_size=128, num_hidden_layers=1, intermediate_size=32, num_experts=4, num_experts_per_tok=2),
                  dict(DEFAULT, rope_theta=500000.0), {}),
    'nanochat': ('NanoChat', dict(DERIVED, vocab_size=128, num_hidden_layers=1), dict(DEFAULT, rope_theta=10000.0), {}),
    'solar_open': ('SolarOpen', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1, intermediate_size=None, moe_intermediate_size=32, n_routed_experts=4,
                                     n_shared_experts=1, num_experts_per_tok=2, tie_word_embeddings=True), dict(DEFAULT, rope_theta=1000000.0), dict(partial_rotary_factor=1.0)),
    'youtu': ('Youtu', dict(LATENT, vocab_size=128, pad_token_id=None, num_hidden_layers=1, intermediate_size=64, tie_word_embeddings=True), dict(DEFAULT, rope_theta=1600000.0), {}),
    'longcat_flash': ('LongcatFlash', dict(LATENT, vocab_size=128, num_hidden_layers=None, num_key_value_heads=None, num_layers=1, q_lora_rank=16, kv_lora_rank=16, v_head_dim=16, head_dim=16,
                                           ffn_hidden_size=8, expert_ffn_hidden_size=16, n_routed_experts=5, zero_expert_num=2, moe_topk=3, pad_token_id=None, tie_word_embeddings=True),
                      dict(DEFAULT, rope_theta=10000000.0), dict(attention_method='MLA', zero_expert_type='identity', mla_scale_q_lora=True, mla_scale_kv_lora=True, router_bias=False,
                                                                 head_dim=None, hidden_act=None, num_key_value_heads=None, qk_head_dim=None)),
    'openai_gpt': ('OpenAIGPT', dict(NARROW, n_positions=176, n_layer=1, tie_word_embeddings=True), None, dict(PLAIN, n_ctx=176)),
    'modernbert_decoder': ('ModernBertDecoder', dict(DERIVED, vocab_size=128, num_key_value_heads=None, rms_norm_eps=None, norm_eps=1e-3, intermediate_size=32, local_attention=64,
                                                     layer_types=['full_attention', 'sliding_attention'], classifier_bias=False, eos_token_id=2, bos_token_id=1, cls_token_id=1,
                                                     sep_token_id=2, tie_word_embeddings=True),
                           dict(full_attention=dict(rope_type='default', rope_theta=160000.0), sliding_attention=dict(rope_type='default', rope_theta=10000.0)),
                           dict(PLAIN, rope_parameters=None, layer_types=None, global_attn_every_n_layers=2, global_rope_theta=160000.0, local_rope_theta=10000.0,
                                position_embedding_type='sans_pos', causal_mask=True, is_causal=True, sliding_window=None, num_key_value_heads=None)),
    'bailing_hybrid': ('BailingHybrid', dict(LATENT, vocab_size=112, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, v_head_dim=16, head_dim=16, intermediate_size=8, moe_intermediate_size=8,
                                             num_local_experts=3, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, layer_group_size=2,
                                             eos_token_id=2, bos_token_id=1),
                       dict(DEFAULT, rope_theta=6000000.0),
                       dict(architectures=['BailingMoeV3ForCausalLM'], layer_types=None, mlp_layer_types=None, linear_head_dim=None, linear_num_heads=None, linear_conv_kernel_dim=None,
                            num_expert_group=None, n_group=1, num_experts_per_token=None, num_experts_per_tok=2, moe_renormalize=None, norm_topk_prob=True, model_max_length=None,
                            max_position_embeddings=512, head_dim=16, no_kda_lora=True, use_kda_lora=False, gated_attention_proj_granularity_type='head_wise', group_norm_size=1,
                            partial_rotary_factor=0.5, rotary_dim=16, score_function='sigmoid', topk_method='noaux_tc', moe_router_enable_expert_bias=True,
                            moe_shared_expert_intermediate_size=8, rope_interleave=True)),
    'afmoe': ('Afmoe', dict(DERIVED, vocab_size=128, head_dim=16, intermediate_size=32, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, num_shared_experts=1,
                            num_dense_layers=1, sliding_window=32, layer_types=['sliding_attention', 'full_attention'], route_scale=2.826, mup_enabled=True,
                            tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0), dict(route_norm=True, score_func='sigmoid', num_expert_groups=1)),
    'bamba': ('Bamba', dict(DERIVED, vocab_size=128, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16, mamba_chunk_size=64, tie_word_embeddings=True),
              dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5), dict(attn_rotary_emb=8, partial_rotary_factor=None)),
    'mamba': ('Mamba', dict(NOTHING, hidden_size=32, num_hidden_layers=2, vocab_size=128, state_size=16, layer_norm_epsilon=1e-3, use_bias=True, tie_word_embeddings=True), None,
              dict(d_inner=64, d_model=32, n_layer=2, rms_norm=True, fused_add_norm=True, ssm_cfg={})),
    'falcon_mamba': ('FalconMamba', dict(NOTHING, hidden_size=32, num_hidden_layers=1, vocab_size=128, state_size=16, layer_norm_epsilon=1e-3, mixer_rms_eps=1e-2,
                                         time_step_rank=8), None, dict(expand=16, intermediate_size=64)),
    'jamba': ('Jamba', dict(DERIVED, vocab_size=128, intermediate_size=16, num_experts=4, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1,
                            mamba_d_state=16, tie_word_embeddings=True), None, dict(mamba_inner_layernorms=True, sliding_window=None, num_logits_to_keep=1)),
    'gemma3n_text': ('Gemma3n', dict(DERIVED, hidden_size=32, head_dim=16, num_hidden_layers=3, intermediate_size=[32, 32, 32], vocab_size=128, vocab_size_per_layer_input=120,
                                     hidden_size_per_layer_input=8, laurel_rank=8, altup_num_inputs=3, activation_sparsity_pattern=[0.8, 0.0, 0.5],
                                     sliding_window=32, layer_types=['sliding_attention', 'full_attention', 'sliding_attention'], num_kv_shared_layers=1, tie_word_embeddings=True),
                     None, dict(rope_parameters=None, rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=None)),
    'hy_v3': ('HYV3', dict(DERIVED, vocab_size=128, head_dim=16, intermediate_size=32, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, num_shared_experts=1,
                           router_scaling_factor=2.826, mlp_layer_types=['dense', 'sparse'], tie_word_embeddings=True), dict(DEFAULT, rope_theta=11158840.0), {}),
    'mellum': ('Mellum', dict(DERIVED, vocab_size=128, head_dim=16, intermediate_size=32, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, sliding_window=32,
                              layer_types=['sliding_attention', 'full_attention'], tie_word_embeddings=True),
               dict(full_attention=dict(rope_type='yarn', rope_theta=500000.0, factor=4.0, original_max_position_embeddings=128),
                    sliding_attention=dict(rope_type='default', rope_theta=10000.0)), {}),
    'olmo_hybrid': ('OlmoHybrid', dict(DERIVED, vocab_size=128, layer_types=['linear_attention', 'full_attention'], linear_num_key_heads=1, linear_num_value_heads=2,
                                       linear_key_head_dim=16, linear_value_head_dim=32, tie_word_embeddings=True), None, dict(rope_parameters=dict(rope_type='default', rope_theta=None))),
    'cohere2_moe': ('Cohere2Moe', dict(DERIVED, vocab_size=128, rms_norm_eps=None, layer_norm_eps=1e-3, head_dim=16, intermediate_size=32, prefix_dense_intermediate_size=64,
                                       num_experts=3, num_experts_per_tok=2, num_shared_experts=1, expert_selection_fn='sigmoid', logit_scale=0.25, sliding_window=32,
                                       layer_types=['full_attention', 'sliding_attention'], mlp_layer_types=['dense', 'sparse'], tie_word_embeddings=True),
                    dict(DEFAULT, rope_theta=50000.0), dict(PLAIN, first_k_dense_replace=1, mlp_layer_types=None)),
    'mimo_v2_flash': ('MiMoV2Flash', dict(DERIVED, vocab_size=128, head_dim=32, v_head_dim=16, intermediate_size=32, moe_intermediate_size=32, n_routed_experts=3, num_experts_per_tok=2,
                                          sliding_window=32, layer_types=['full_attention', 'sliding_attention'], mlp_layer_types=['dense', 'sparse'], tie_word_embeddings=True),
                      dict(full_attention=dict(rope_type='default', rope_theta=5000000.0, partial_rotary_factor=0.5),
                           sliding_attention=dict(rope_type='default', rope_theta=10000.0, partial_rotary_factor=0.5)),
                      dict(rope_parameters=None, layer_types=None, mlp_layer_types=None, rms_norm_eps=None, rope_theta=5000000.0, swa_rope_theta=10000.0,
                           partial_rotary_factor=0.5, hybrid_layer_pattern=[0, 1], moe_layer_freq=[0, 1], swa_num_attention_heads=2, swa_num_key_value_heads=2, swa_head_dim=32,
                           swa_v_head_dim=16, sliding_window=31, sliding_window_size=31, add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
                           layernorm_epsilon=1e-3, scoring_func='sigmoid', topk_method='noaux_tc')),
    'laguna': ('Laguna', dict(DERIVED, vocab_size=128, head_dim=16, intermediate_size=32, moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=3,
                              num_experts_per_tok=2, num_attention_heads_per_layer=[2, 4], moe_routed_scaling_factor=2.5, sliding_window=32,
                              layer_types=['full_attention', 'sliding_attention'], mlp_layer_types=['dense', 'sparse'], tie_word_embeddings=True),
               dict(full_attention=dict(rope_type='yarn', rope_theta=500000.0, factor=4.0, original_max_position_embeddings=128, beta_slow=1.0, beta_fast=64.0,
                                        attention_factor=1.0, partial_rotary_factor=0.5),
                    sliding_attention=dict(rope_type='default', rope_theta=10000.0, partial_rotary_factor=1.0)), {}),
    # Laguna M.1: no windows, gates of elements, routers that are capped.
    'laguna_full': ('Laguna', dict(DERIVED, vocab_size=128, head_dim=16, intermediate_size=32, moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=3,
                                   num_experts_per_tok=2, moe_routed_scaling_factor=2.5, moe_router_logit_softcapping=2.0, gating='per-element', sliding_window=0,
                                   num_hidden_layers=1, mlp_layer_types=['sparse'], tie_word_embeddings=True),
                    dict(full_attention=dict(rope_type='default', rope_theta=500000.0, partial_rotary_factor=0.5)),
                    dict(layer_types=None, num_attention_heads_per_layer=None)),
    # Nemotron 3 Super's experts.
    'nemotron_h_latent': ('NemotronH', dict(DERIVED, vocab_size=128, head_dim=16, rms_norm_eps=None, layer_norm_epsilon=1e-3, num_hidden_layers=None,
                                            hybrid_override_pattern='*E', n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                            moe_shared_expert_intermediate_size=16, moe_latent_size=16, routed_scaling_factor=2.5, mamba_num_heads=2,
                                            mamba_head_dim=16, n_groups=1, ssm_state_size=16),
                          None, dict(PLAIN, hybrid_override_pattern='*E', num_hidden_layers=2, layer_types=None, layers_block_type=None)),
    'bitnet': ('BitNet', dict(DERIVED, vocab_size=128, num_hidden_layers=1, tie_word_embeddings=True), dict(DEFAULT, rope_theta=500000.0), {}),
    'gpt_neo': ('GPTNeo', dict(SMALL, num_heads=2, intermediate_size=64, window_size=32, attention_types=[[['global', 'local'], 1]], max_position_embeddings=176,
                               tie_word_embeddings=True), None, PLAIN),
    'exaone': ('Exaone', dict(DERIVED, vocab_size=128, num_hidden_layers=1),
               dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64, rope_theta=1000000.0),
               dict(num_layers=1, num_hidden_layers=None, layer_norm_epsilon=1e-3, rms_norm_eps=None, activation_function='silu', hidden_act=None)),
    'ministral': ('Ministral', dict(DERIVED, vocab_size=128, head_dim=16, sliding_window=32, layer_types=['sliding_attention', 'full_attention'], tie_word_embeddings=True),
                  dict(DEFAULT, rope_theta=1000000.0), {}),
    'helium': ('Helium', dict(DERIVED, vocab_size=128, head_dim=16, num_hidden_layers=1), dict(DEFAULT, rope_theta=100000.0), {}),
    'jais2': ('Jais2', dict(DERIVED, vocab_size=128, rms_norm_eps=None, num_hidden_layers=1, layer_norm_eps=1e-3), dict(DEFAULT, rope_theta=500000.0), PLAIN),
    'vaultgemma': ('VaultGemma', dict(DERIVED, vocab_size=128, head_dim=16, sliding_window=32, query_pre_attn_scalar=24, layer_types=['sliding_attention', 'full_attention'],
                                      tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0), {}),
    'biogpt': ('BioGpt', dict(SMALL, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, max_position_embeddings=176, tie_word_embeddings=True), None, PLAIN),
    'xglm': ('XGLM', dict(NOTHING, vocab_size=128, d_model=32, num_layers=1, attention_heads=2, ffn_dim=64, max_position_embeddings=512, tie_word_embeddings=True), None, {}),
    # Its last layer alone has a bias.
    'gpt_neox_japanese': ('GPTNeoXJapanese', dict(SMALL, num_attention_heads=2, intermediate_multiple_size=1, layer_norm_eps=1e-3, tie_word_embeddings=True),
                          dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5),
                          dict(PLAIN, rotary_pct=0.5, rotary_emb_base=10000, rope_theta=None, rope_scaling=None, partial_rotary_factor=None)),
    'persimmon': ('Persimmon', dict(SMALL, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, layer_norm_eps=1e-3, tie_word_embeddings=True),
                  dict(DEFAULT, rope_theta=25000.0, partial_rotary_factor=0.5), PLAIN),
    'cohere_compass': ('CohereCompass', dict(DERIVED, vocab_size=128, intermediate_size=32, rms_norm_eps=None, layer_norm_eps=1e-3, logit_scale=0.25, sliding_window=32,
                                             layer_types=['sliding_attention', 'full_attention'], tie_word_embeddings=True),
                       dict(full_attention=None, sliding_attention=dict(rope_type='default', rope_theta=50000.0)), PLAIN),
    'flint': ('Flint', dict(DERIVED, vocab_size=112, head_dim=16, intermediate_size=32, moe_intermediate_size=8, shared_expert_intermediate_size=8, num_experts=3,
                            num_experts_per_tok=2, mlp_only_layers=[0], sliding_window=33, layer_types=['full_attention', 'sliding_attention'], tie_word_embeddings=True),
              dict(DEFAULT, rope_theta=10000.0), {}),
    'aria_text': ('AriaText', dict(DERIVED, vocab_size=128, num_hidden_layers=1, intermediate_size=16, moe_num_experts=3, moe_topk=2, moe_num_shared_experts=2,
                                   tie_word_embeddings=True), dict(DEFAULT, rope_theta=5000000.0), {}),
    'lara_mini': ('LaraMini', dict(DERIVED, vocab_size=112, hidden_size=16, head_dim=16, intermediate_size=None, num_hidden_layers=3, moe_intermediate_size=16,
                                   shared_expert_intermediate_size=16, num_experts=3, num_experts_per_tok=2, sliding_window=32, linear_num_key_heads=1,
                                   linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
                                   layer_types=['linear_attention', 'sliding_attention', 'full_attention'], tie_word_embeddings=True),
                  dict(DEFAULT, rope_theta=10000.0), dict(intermediate_size=None)),
    'kolibri1': ('Kolibri1', dict(DERIVED, vocab_size=112, head_dim=16, intermediate_size=None, moe_intermediate_size=8, shared_expert_intermediate_size=8, num_experts=3,
                                  num_experts_per_tok=2, sliding_window=33, layer_types=['full_attention', 'sliding_attention'], tie_word_embeddings=True),
                 dict(DEFAULT, rope_theta=10000.0), dict(num_local_experts=None, num_experts=3)),
    # One layer of two selects keys, four blocks of sixteen.
    'minimax_m3': ('MiniMaxM3VL', dict(GROUPED, vocab_size=112, hidden_size=16, intermediate_size=8, dense_intermediate_size=16, shared_intermediate_size=8,
                                       num_local_experts=3, num_experts_per_tok=2, rotary_dim=8, index_n_heads=2, index_head_dim=16, index_block_size=16, index_topk_blocks=4,
                                       layer_types=['full_attention', 'minimax_m3_sparse'], mlp_layer_types=['dense', 'sparse'], tie_word_embeddings=True),
                   dict(DEFAULT, rope_theta=5000000.0, partial_rotary_factor=0.5),
                   dict(hidden_act='swigluoai', layer_types=None, mlp_layer_types=None, moe_layer_freq=[0, 1], index_n_heads=None, index_head_dim=None, index_block_size=None,
                        index_topk_blocks=None, index_local_blocks=None,
                        sparse_attention_config=dict(sparse_num_index_heads=2, sparse_index_dim=16, sparse_block_size=16, sparse_topk_blocks=4, sparse_local_block=1,
                                                     sparse_attention_freq=[0, 1]))),
    # The second of three layers runs twice.
    'dory': ('Dory', dict(DERIVED, vocab_size=112, hidden_size=16, intermediate_size=16, head_dim=16, num_hidden_layers=3, n_input_layers=1, n_output_layers=1,
                          sliding_window=32, layer_types=['sliding_attention', 'full_attention', 'sliding_attention'], initializer_range=1.0, ngpt_alpha_init=0.3,
                          rms_norm_eps=None, tie_word_embeddings=True),
             dict(full_attention=dict(rope_type='default', rope_theta=10000000.0), sliding_attention=dict(rope_type='default', rope_theta=10000.0)), PLAIN),
    'jetmoe': ('JetMoe', dict(vocab_size=112, hidden_size=16, num_key_value_heads=2, kv_channels=16, intermediate_size=8, num_local_experts=3, num_experts_per_tok=2,
                              rms_norm_eps=1e-3, tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0), {}),
    # Three uses of two transformers.
    'zamba2': ('Zamba2', dict(DERIVED, vocab_size=112, hidden_size=16, intermediate_size=16, num_hidden_layers=4, layers_block_type=['mamba', 'hybrid', 'hybrid', 'hybrid'],
                              mamba_d_state=8, n_mamba_heads=2, mamba_ngroups=2, num_mem_blocks=2, adapter_rank=8, use_mem_rope=True, tie_word_embeddings=True),
               dict(DEFAULT, rope_theta=10000.0), dict(layers_block_type=['mamba', 'hybrid', 'hybrid', 'hybrid'], use_shared_mlp_adapter=True)),
    'recurrent_gemma': ('RecurrentGemma', dict(DERIVED, vocab_size=128, hidden_size=32, lru_width=32, intermediate_size=32, num_hidden_layers=3,
                                               attention_window_size=32, tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0, partial_rotary_factor=0.5),
                        dict(block_types=None, _block_types=['recurrent', 'recurrent', 'attention'], embeddings_scale_by_sqrt_dim=True, head_dim=16)),
    'axk2': ('AXK2', dict(LATENT, vocab_size=112, hidden_size=16, intermediate_size=16, moe_intermediate_size=8, n_routed_experts=4, n_shared_experts=1, n_group=2, topk_group=1,
                          num_experts_per_tok=2, v_head_dim=16, q_lora_rank=16, kv_lora_rank=16, index_topk=32, index_head_dim=16, index_n_heads=8, gated_norm_rank=4,
                          mlp_layer_types=['dense', 'sparse'], tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0),
             dict(mlp_layer_types=None, layer_types=None, head_dim=None, first_k_dense_replace=1, moe_layer_freq=1, scoring_func='sigmoid', topk_method='noaux_tc')),
    # Its first layer selects keys for the second.
    'hy_v4': ('HYV4', dict(LATENT, vocab_size=112, hidden_size=16, intermediate_size=16, moe_intermediate_size=16, n_routed_experts=3, n_shared_experts=1,
                           num_experts_per_tok=2, v_head_dim=16, q_lora_rank=16, index_topk=32, index_head_dim=16, index_n_heads=12, hc_mult=3, hc_magnitude=1.5,
                           swiglu_limit=0.5, indexer_types=['full', 'shared'], tie_word_embeddings=True), dict(DEFAULT, rope_theta=10000.0), {}),
    # The text of a class that has images besides. Its second layer knows no positions, its third reads the first one's latents and the second one's selection.
    'mistral_large4': ('MistralLarge4', dict(LATENT, vocab_size=112, hidden_size=16, num_hidden_layers=3, intermediate_size=16, moe_intermediate_size=8, n_routed_experts=3,
                                             n_shared_experts=1, num_experts_per_tok=2, q_lora_rank=None, kv_lora_rank=16, v_head_dim=16, index_topk=32, index_head_dim=16,
                                             index_n_heads=8, no_rope_layers=[1, 0, 1], kv_source_layers=[0, 1, 0], indexer_types=['full', 'full', 'shared'],
                                             mlp_layer_types=['dense', 'sparse', 'dense'], final_logit_softcapping=8.0),
                       dict(YARN, attention_factor=1.0, rope_theta=10000.0), dict(q_lora_rank=None)),
    # The text of such a class, too. Pools of 8 tokens; its last layer sees what the one before it selects.
    'glm5_next': ('Glm5Next', dict(LATENT, vocab_size=112, hidden_size=16, num_hidden_layers=3, intermediate_size=16, moe_intermediate_size=8, n_routed_experts=3, n_shared_experts=1,
                                   num_experts_per_tok=2, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=0, v_head_dim=16, index_topk=32, index_kpool=8, index_head_dim=16, index_n_heads=8,
                                   hc_mult=2, swiglu_limit=0.5, linear_num_heads=1, linear_head_dim=32, layer_types=['linear_attention', 'indexed_attention', 'indexed_attention'],
                                   indexer_types=['full', 'full', 'shared'], mlp_layer_types=['dense', 'sparse', 'dense'], tie_word_embeddings=True), None, {}),
    # With towers that its class always has.
    'phi4_multimodal': ('Phi4Multimodal', dict(DERIVED, vocab_size=112, num_hidden_layers=1, intermediate_size=32, original_max_position_embeddings=64, tie_word_embeddings=True,
                                               vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1, image_size=28, crop_size=28),
                                               audio_config=dict(hidden_size=16, intermediate_size=16, num_blocks=1, num_attention_heads=1, ext_pw_out_channel=16, input_size=8,
                                                                 depthwise_separable_out_channel=16, nemo_conv_channels=16, bias_max_distance=4)),
                        dict(LONGROPE, short_factor=LONGROPE['short_factor'][:6], long_factor=LONGROPE['long_factor'][:6], rope_theta=10000.0, partial_rotary_factor=0.75),
                        dict(rope_scaling=dict(type='longrope', short_factor=LONGROPE['short_factor'][:6], long_factor=LONGROPE['long_factor'][:6]), partial_rotary_factor=0.75,
                             vision_config=None, audio_config=None, model_type='phi4mm', architectures=['Phi4MMForCausalLM'], attention_bias=False, mlp_bias=False, lm_head_bias=False,
                             speech_lora=dict(dp=0.01, layer='((layers.*self_attn\\.(qkv|o)_proj)|(layers.*mlp\\.(gate_up|down)_proj))', lora_alpha=16, r=8))),
    # The text of such a class.
    'deepseek_ocr2': ('DeepseekOcr2', dict(vocab_size=112, hidden_size=16, intermediate_size=16, num_attention_heads=1, num_key_value_heads=1, moe_intermediate_size=8, n_routed_experts=3, n_shared_experts=1,
                                           num_experts_per_tok=2, n_group=1, topk_group=1, mlp_layer_types=['dense', 'sparse']), dict(DEFAULT, rope_theta=10000.0),
                      dict(mlp_layer_types=None, first_k_dense_replace=1, use_mla=False, head_dim=None)),
    # The text of one of them, which there is a class of. Its second layer attends to images.
    'mllama': ('Mllama', dict(DERIVED, vocab_size=112, num_hidden_layers=3, intermediate_size=16, cross_attention_layers=[1]),
               dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64, rope_theta=500000.0), {}),
    # And of such a one.
    'muse_glimmer': ('MuseGlimmer', dict(GROUPED, vocab_size=112, hidden_size=16, num_hidden_layers=4, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, sliding_window=32,
                                         final_logit_softcapping=4.0, output_multiplier=0.5, post_norm_eps=1e-8, qk_scale_factor=2.5,
                                         layer_types=['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention'], layer_rope_theta=[0, 10000.0, 10000.0, 0]),
                     dict(DEFAULT, rope_theta=10000.0), {}),
    # More tokens go in than come out.
    'apertus1p5_text': ('Apertus1p5Text', dict(DERIVED, vocab_size=160, output_vocab_size=128, num_hidden_layers=1, intermediate_size=32),
                        dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64, rope_theta=12000000.0),
                        {}),
}


def numbers(tensor):
    return [float(f'{x:.6g}') for x in tensor.tolist()]


def changed(model):
    """The same weights but for a relative 3e-7."""
    other = copy.deepcopy(model)
    for tensor in other.parameters():
        tensor.data = tensor * (1 + 3e-7 * torch.randn_like(tensor))
    return other


def case(model, near, name, ids):
    with torch.no_grad():
        run = lambda tokens: model(torch.tensor([tokens]), use_cache=False).logits[0]
        logits = run(ids)
        positions = sorted({0, len(ids) // 2, len(ids) - 1})
        greedy = dict(tokens=[], top1_logits=[], margins=[])
        tokens = list(ids)
        for _ in range(STEPS):
            top = torch.topk(run(tokens)[-1], 2)
            greedy['tokens'].append(top.indices[0].item())
            greedy['top1_logits'] += numbers(top.values[:1])
            greedy['margins'] += numbers(top.values[:1] - top.values[1:])
            tokens.append(top.indices[0].item())
    return dict(name=name, input_ids=ids, positions=positions, logits=[numbers(logits[p]) for p in positions], logit_std=logits[-1].std().item(),
                greedy=greedy, sensitivity=((near(torch.tensor([ids]), use_cache=False).logits[0] - logits).abs().max() / logits[-1].std()).item())


def tokens_of(config):
    config = config.get_text_config()
    return getattr(config, 'output_vocab_size', None) or config.vocab_size


def clear_case(model, near, count):
    """A prompt after which no greedy step is near a tie."""
    for seed in range(200):
        ids = torch.randint(3, tokens_of(model.config), (count,), generator=torch.Generator().manual_seed(seed)).tolist()
        found = case(model, near, f'len{count}', ids)
        if min(found['greedy']['margins']) > 4e-3 * found['logit_std'] and found['sensitivity'] < 5e-5:
            return found
    raise SystemExit('no prompt')


# Dory's, stored as multiples of initializer_range; RecurrentGemma's, drawn by its class.
LEARNED_FACTORS = ('sqk', 's_gate', 'lambda_1', 'lambda_2', 'suv_gate', 'suv_up', 'logit_scale', 'recurrent_param')


def draw(name, tensor, one):
    if name.endswith('.bias') and ('norm' in name or 'ln_' in name):
        return 0.2 * torch.randn_like(tensor)
    if ('norm' in name or 'ln_' in name) and 'norm_attn_norm.attn' not in name and 'layernorm.mlp.' not in name:
        return one + 0.2 * torch.randn_like(tensor)
    if name.rsplit('.', 1)[-1] in LEARNED_FACTORS:
        return tensor * (1 + 0.2 * torch.randn_like(tensor))
    if 'modality_router' in name:  # what it gives is divided by the width
        return 4 * torch.randn_like(tensor)
    if name.endswith('softmax_scaling.bias'):
        return 1 + 0.2 * torch.randn_like(tensor)
    return (1.0 if 'embed' in name or 'wte' in name else 0.2) * torch.randn_like(tensor)


def published(config, rope, extra):
    """As config.json had it before transformers 5."""
    config = {k: v for k, v in config.items() if k not in ('rope_parameters', 'dtype')}
    if rope is not None and 'full_attention' in rope:
        config['rope_parameters'] = rope
    elif rope is not None:
        rope = dict(rope)
        config['rope_theta'] = rope.pop('rope_theta')
        kind = rope.pop('rope_type')
        config['rope_scaling'] = None if kind == 'default' else dict(rope, **{'rope_type' if kind == 'llama3' else 'type': kind})
        if kind == 'default':
            config.update(rope)
    config.update(extra, torch_dtype='bfloat16', transformers_version='4.57.1')
    return {k: v for k, v in config.items() if k not in extra or v is not None}


def as_published(path):
    """OLMo Hybrid's: transformers cuts the convolutions into thirds, and renames a norm of other layers too."""
    tensors = safetensors.torch.load_file(path)
    for part in [n for n in tensors if n.endswith('.q_conv1d.weight')]:
        names = [part.replace('q_conv', f'{x}_conv') for x in 'qkv']
        sizes = [tensors[n.replace('conv1d', 'proj')].shape[0] for n in names]
        tensors.update(zip(names, (t.clone() for t in torch.cat([tensors[n] for n in names]).split(sizes))))
    for norm in [n for n in tensors if n.endswith('.feedforward_layer_norm.weight')]:
        prefix = norm.removesuffix('feedforward_layer_norm.weight')
        if prefix + 'self_attn.q_proj.weight' in tensors:
            tensors[prefix + 'post_attention_layernorm.weight'] = tensors.pop(norm)
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def in_pairs(path):
    """Dory's: published files have attention and MLP as layers of their own."""
    tensors = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        if '.layers.' in name:
            root, rest = name.split('.layers.')
            layer, part = rest.split('.', 1)
            is_mlp = part.startswith('mlp') or part == 'lambda_2'
            part = dict(lambda_1='attn_alpha', lambda_2='mlp_alpha').get(part) or 'mixer.' + part.split('.', 1)[1]
            name = f'{root}.layers.{2 * int(layer) + is_mlp}.{part}'
        tensors[name] = tensor
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def as_minimax(path):
    """MiniMax-M3's: transformers writes, and reads, its own names where the text model is alone."""
    tensors = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        name = name.replace('self_attn.indexer.', 'self_attn.index_')
        if '.mlp.gate.' in name or '.mlp.experts.' in name or '.mlp.shared_experts.' in name:
            name = name.replace('.mlp.', '.block_sparse_moe.').replace('.gate.e_score', '.e_score')
        parts = [(name, tensor)]
        if 'gate_up_proj' in name and tensor.dim() == 2:
            parts = [(name.replace('gate_up', part), half) for part, half in zip(('gate', 'up'), tensor.chunk(2))]
        if tensor.dim() == 3:
            root, kind = name.rsplit('.', 1)
            halves = [('w1', 'w3'), tensor.chunk(2, 1)] if kind == 'gate_up_proj' else [('w2',), (tensor,)]
            parts = [(f'{root}.{e}.{part}.weight', half[e]) for part, half in zip(*halves) for e in range(len(tensor))]
        tensors.update((name, part.contiguous()) for name, part in parts)
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def without_corrections(path):
    """A.X-K1's: transformers writes the zeros that it assumes."""
    tensors = {n: t for n, t in safetensors.torch.load_file(path).items() if not n.endswith('e_score_correction_bias')}
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def without_identities(path):
    """LongCat-Flash's: transformers 5.24 writes, and wants, gates and ups of experts that give back what they read."""
    tensors = safetensors.torch.load_file(path)
    tensors = {n: t for n, t in tensors.items() if '.experts.' not in n or n.rsplit('.', 2)[0] + '.down_proj.weight' in tensors}
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def with_two_outputs(path):
    """Ling 3's: transformers writes one name for the outputs of both kinds of layers."""
    tensors = safetensors.torch.load_file(path)
    for name in [n for n in tensors if n.endswith('.A_log')]:
        prefix = name.removesuffix('A_log')
        tensors[prefix + 'o_proj.weight'] = tensors.pop(prefix + 'dense.weight')
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def beside_adapters(path):
    """Phi-4-multimodal's: layers as published, an adapter beside one of them, and no towers."""
    tensors = {n: t for n, t in safetensors.torch.load_file(path).items() if 'embed_tokens_extend' not in n}
    tensors = {n.replace('_proj.weight', '_proj.base_layer.weight'): t for n, t in tensors.items()}
    tensors['model.layers.0.self_attn.o_proj.lora_A.speech.weight'] = torch.ones(2, 32, dtype=torch.bfloat16)
    tensors['model.layers.0.self_attn.o_proj.lora_B.speech.weight'] = torch.ones(32, 2, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def text_alone(path):
    """Without towers and what lies behind them; named as where there are none."""
    tensors = safetensors.torch.load_file(path)
    tensors = {n.replace('model.language_model.', 'model.'): t for n, t in tensors.items() if not n.startswith(('vision_', 'patch_merger', 'pre_mm_', 'model.vis', 'model.sam_', 'model.projector', 'model.view_', 'model.qwen2_'))}
    safetensors.torch.save_file(tensors, path, metadata=dict(format='pt'))


def write(name):
    prefix, keys, rope, extra = FAMILIES[name]
    torch.manual_seed(11)
    architecture = dict(OpenAIGPT='OpenAIGPTLMHeadModel').get(prefix, prefix + 'ForCausalLM')
    # Exaone has a configuration and no class of its own.
    model_class = getattr(transformers, architecture, transformers.AutoModelForCausalLM)
    keys = {k: v for k, v in dict(COMMON, **keys).items() if v is not None or k not in COMMON}
    if rope is not None:
        keys['rope_parameters'] = dict(rope)
    elif prefix == 'OlmoHybrid':  # published without
        keys['rope_parameters'] = dict(DEFAULT, rope_theta=None)
    # Those of multimodal families have a configuration of text.
    config = getattr(transformers, prefix + 'TextConfig', None) or getattr(transformers, prefix + 'Config')
    config = config(**keys)
    if prefix in OUTER:
        # There is no class of the text alone.
        model_class = getattr(transformers, prefix + 'ForConditionalGeneration')
        text, config = config, getattr(transformers, prefix + 'Config')(text_config=config.to_dict(), vision_config=OUTER[prefix],
                                                                                  tie_word_embeddings=config.tie_word_embeddings)
        model = model_class(config)
    else:
        text = config
        model = model_class(config) if hasattr(transformers, architecture) else model_class.from_config(config)
    for tensors in (model.named_parameters(), model.named_buffers()):
        for part, tensor in tensors:
            if tensor.is_floating_point() and 'inv_freq' not in part and 'embed_scale' not in part:
                is_centred = prefix in ('Nemotron', 'VaultGemma', 'RecurrentGemma') or prefix == 'MuseGlimmer' and '.layers.' in part
                tensor.data = draw(part, tensor.data, 0 if is_centred else 1)
                if prefix == 'RecurrentGemma' and 'embed' in part:  # a token would be followed by itself
                    tensor.data *= 0.05
    folder = HERE / name
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / 'generation_config.json').unlink(missing_ok=True)
    if prefix == 'OlmoHybrid':
        as_published(folder / 'model.safetensors')
    if prefix == 'Dory':
        in_pairs(folder / 'model.safetensors')
    if prefix == 'AXK1':
        without_corrections(folder / 'model.safetensors')
    if prefix == 'BailingHybrid':
        with_two_outputs(folder / 'model.safetensors')
    saved = json.loads((folder / 'config.json').read_text())
    saved = dict(saved.get('text_config', saved), architectures=[architecture])
    (folder / 'config_v5.json').write_text(json.dumps(saved, indent=1) + '\n')
    (folder / 'config.json').write_text(json.dumps(published(saved, rope, extra), indent=1) + '\n')
    # Of Falcon's the one that adds ALiBi once: eager attention has it in the mask besides.
    attention = 'sdpa' if prefix == 'Falcon' else 'eager'
    reference = model_class.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation=attention).eval()
    near = changed(reference)
    if prefix == 'MiniMaxM3VL':
        as_minimax(folder / 'model.safetensors')
    if prefix == 'Phi4Multimodal':
        beside_adapters(folder / 'model.safetensors')
    if prefix == 'LongcatFlash':
        without_identities(folder / 'model.safetensors')
    # Few where every token goes the same way.
    is_plain = 'num_experts_per_tok' not in keys and 'moe_k' not in keys and 'moe_topk' not in keys and 'ffn_config' not in keys and (rope is None or rope.get('rope_type') != 'longrope')
    if prefix in OUTER:
        text_alone(folder / 'model.safetensors')
    cases = [clear_case(reference, near, n) for n in ((1, 130) if is_plain else (1, 33, 130))]
    golden = dict(format=1, name=name, architecture=architecture, model_type=text.model_type, weights_dtype='bfloat16', vocab_size=tokens_of(text), cases=cases)
    (folder / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        write(name)
