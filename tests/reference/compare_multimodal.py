#!/usr/bin/env python3
"""Logits of text beside transformers' of tiny random multimodal models: each class of core/formats/multimodal.def that transformers has.

Each is made with its towers, and read three times: as transformers 5 saves it, with tensors named as published files of before have them,
and with the configuration of those. A line each: the largest difference of logits over their deviation, "DIFFERS" where it is more than
1e-4 and than what weights that change by a relative 3e-7 make of transformers' own (shown behind), "refused" for an error of Inlay's. Not a test, as compare_transformers.py is none. From the repository's root:

    python3 tests/reference/compare_multimodal.py [CLASS ...]
"""
import argparse
import json
import pathlib
import sys
import tempfile

import compare_transformers as single
import safetensors.torch
import torch
import transformers

TEXT = {key: value for key, value in single.BASE.items() if not key.endswith("_id")} | {"head_dim": 16}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [2, 3, 3]}}
# Without a head_dim of their own.
MROPE_12 = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [2, 3, 1]}}
OLD_MROPE = {"rope_theta": 5000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 1]}}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
HYBRID = {"num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
          "layer_types": ["linear_attention"] * 3 + ["full_attention"],
          "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
                              "mrope_interleaved": True}}
SIGLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
QWEN_VISION = {"depth": 1, "embed_dim": 32, "hidden_size": 48, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
QWEN3_VISION = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 48, "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0]}
GLM_VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 48, "image_size": 28}
PIXTRAL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
           "model_type": "pixtral"}
CLIP = {**SIGLIP, "model_type": "clip_vision_model", "projection_dim": 16}
LATENT = {"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
          "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1}
AUDIO = {"d_model": 32, "hidden_size": 32, "encoder_layers": 1, "num_hidden_layers": 1, "encoder_attention_heads": 2, "num_attention_heads": 2,
         "encoder_ffn_dim": 48, "intermediate_size": 48, "max_source_positions": 16, "num_mel_bins": 8}
GEMMA = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 8}
GRANITE = {"embedding_multiplier": 6.0, "logits_scaling": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3}
SPEECH = {"encoder_config": {"input_dim": 8, "num_layers": 1, "hidden_dim": 32, "num_heads": 2, "output_dim": 8, "context_size": 8, "max_pos_emb": 16, "conv_kernel_size": 3},
          "projector_config": {"model_type": "blip_2_qformer", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "encoder_hidden_size": 32},
          "audio_token_index": 95, "has_lora_adapter": False}
VIBE = {"model_type": "vibevoice_acoustic_tokenizer_encoder", "hidden_size": 16, "num_filters": 4, "depths": [1, 1], "downsampling_ratios": [2]}
LLAVA = [("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."), ("model.", "")]
QIANFAN = ("language_model.model.encoder.layers.", "language_model.model.layers.")  # what is written of what is read otherwise
EMU = [("model.text_model.", "text_model.model."), ("lm_head.", "text_model.lm_head.")]
HYPERCLOVA = [("model.language_model.lm_head.", "model.language_model.lm_head."), ("model.language_model.", "model.language_model.model.")]
THINKER = [("", "thinker.")]
QWEN2_VL = [("model.language_model.", "model."), ("model.visual.", "visual.")]


def qwen2_vl(config):
    """Keys of the text stand beside the others."""
    text = config.pop("text_config")
    for key in ("model_type", "rope_parameters"):
        text.pop(key)
    return text | OLD_MROPE | config


def old_rope(config):
    text = config["text_config"]
    text.pop("rope_parameters")
    text |= {"rope_theta": 5000.0, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True}}
    return config


def old_gemma3(config):
    """Published files leave most keys out; heads of 256 dimensions are what they mean then."""
    text = config["text_config"]
    ropes = text.pop("rope_parameters")
    text |= {"rope_theta": ropes["full_attention"]["rope_theta"], "rope_local_base_freq": ropes["sliding_attention"]["rope_theta"],
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    for key in ("layer_types", "tie_word_embeddings", "hidden_activation", "query_pre_attn_scalar", "vocab_size_text", "attention_bias"):
        text.pop(key, None)
    config.pop("tie_word_embeddings", None)
    return config


def flat(config):
    """Keys of the text stand beside the others; biases are none."""
    text = config.pop("text_config")
    text.pop("model_type")
    ropes = text.pop("rope_parameters")
    return text | {"rope_theta": ropes.pop("rope_theta"), "rope_scaling": {**ropes, "type": ropes["rope_type"]}} | config


def flat_hunyuan(config):
    config = flat(config)
    ropes = config["rope_scaling"]
    ropes.pop("rope_type")
    config["attention_head_dim"] = config.pop("head_dim")
    if "alpha" in ropes:
        config["rope_scaling"] = {**ropes, "type": "xdrope", "xdrope_section": ropes.pop("mrope_section")}
        config["rope_scaling"].pop("mrope_section")
    return config


def flat_persimmon(config):
    text = config.pop("text_config")
    text.pop("model_type")
    text.pop("rope_parameters")
    return text | {"rope_theta": 25000.0, "rope_scaling": None} | config


def flat_deepseek_ocr(config):
    """As DeepSeek's own files have it."""
    text = config.pop("text_config")
    types = text.pop("mlp_layer_types")
    text.pop("rope_parameters")
    return text | config | {"architectures": ["DeepseekOCR2ForCausalLM"], "model_type": "deepseek_vl_v2", "first_k_dense_replace": types.index("sparse"), "use_mla": False,
                            "q_lora_rank": None, "kv_lora_rank": None, "language_config": {"hidden_size": text["hidden_size"]}}


def thinker(architecture, model_type):
    """Inside a model that speaks, too."""
    return lambda config: {"architectures": [architecture], "model_type": model_type, "talker_config": {}, "thinker_config": config}


CASES = {
    "Gemma3ForConditionalGeneration": [
        {"text": {**GEMMA, "query_pre_attn_scalar": 256}, "vision": SIGLIP, "outer": {"mm_tokens_per_image": 4}, "old": LLAVA, "config": old_gemma3},
        {"text": {**GEMMA, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                               "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
         "vision": SIGLIP, "outer": {"mm_tokens_per_image": 4}, "old": LLAVA}],
    "Gemma4ForConditionalGeneration": [{"text": {**GEMMA, "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8, "global_head_dim": 16},
                                        "vision": {**SIGLIP, "num_key_value_heads": 2, "head_dim": 16}, "outer": {"audio_config": None}}],
    "Gemma4UnifiedForConditionalGeneration": [{"text": {**GEMMA, "global_head_dim": 16}, "vision": {}, "outer": {"audio_config": None}}],
    "Mistral3ForConditionalGeneration": [
        {"text": {"model_type": "mistral", "sliding_window": None}, "vision": PIXTRAL, "outer": {"tie_word_embeddings": False}, "old": LLAVA},
        {"text": {"model_type": "mistral", "sliding_window": None}, "vision": PIXTRAL, "outer": {}, "old": LLAVA},
        {"text": {"model_type": "ministral3", "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                                                  "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.1}},
         "vision": PIXTRAL, "outer": {"tie_word_embeddings": False}, "old": LLAVA},
        {"text": {"model_type": "mistral4", **LATENT}, "vision": PIXTRAL, "no_head_dim": True, "outer": {"tie_word_embeddings": False}, "old": LLAVA}],
    "Llama4ForConditionalGeneration": [
        {"text": {"intermediate_size_mlp": 64, "num_local_experts": 4, "attention_chunk_size": 16, "moe_layers": [1]},
         "vision": {**SIGLIP, "projector_input_dim": 32, "projector_output_dim": 32, "vision_output_dim": 32, "intermediate_size": 128}}],
    "Qwen2VLForConditionalGeneration": [
        {"text": MROPE_12, "vision": QWEN_VISION, "outer": {"tie_word_embeddings": tied}, "old": QWEN2_VL, "config": qwen2_vl, "no_head_dim": True}
        for tied in (False, True)],
    "Qwen2_5_VLForConditionalGeneration": [
        {"text": MROPE_12, "vision": {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 48},
         "outer": {"tie_word_embeddings": tied}, "old": QWEN2_VL, "config": qwen2_vl, "no_head_dim": True} for tied in (False, True)],
    "Qwen3VLForConditionalGeneration": [
        {"text": {"rope_parameters": {**MROPE["rope_parameters"], "mrope_interleaved": True}}, "vision": QWEN3_VISION, "config": old_rope,
         "outer": {"tie_word_embeddings": tied}} for tied in (False, True)],
    "Qwen3VLMoeForConditionalGeneration": [
        {"text": {**MROPE, **MOE}, "vision": QWEN3_VISION, "transposed": True, "config": old_rope, "old": [], "outer": {"tie_word_embeddings": False}}],
    "Qwen3_5ForConditionalGeneration": [
        {"text": HYBRID, "vision": QWEN3_VISION, "outer": {"tie_word_embeddings": tied}} for tied in (False, True)],
    "Qwen3_5MoeForConditionalGeneration": [
        {"text": {**HYBRID, **MOE, "shared_expert_intermediate_size": 24}, "vision": QWEN3_VISION}],
    "LlavaForConditionalGeneration": [
        {"text": {"model_type": kind}, "vision": CLIP, "old": LLAVA, "outer": {"image_token_index": 90}} for kind in ("llama", "mistral", "qwen2", "gemma")],
    "LlavaNextForConditionalGeneration": [
        {"text": {"model_type": kind}, "no_head_dim": kind == "granite", "vision": CLIP, "old": LLAVA, "outer": {"image_token_index": 90}}
        for kind in ("mistral", "granite")],
    "LlavaNextVideoForConditionalGeneration": [{"text": {"model_type": "llama"}, "vision": CLIP, "old": LLAVA, "outer": {"image_token_index": 90}}],
    "VipLlavaForConditionalGeneration": [{"text": {"model_type": "llama"}, "vision": CLIP, "old": LLAVA,
                                          "outer": {"image_token_index": 90, "vision_feature_layers": [-1]}}],
    "LlavaOnevisionForConditionalGeneration": [{"text": {"model_type": "qwen2"}, "no_head_dim": True, "vision": {**SIGLIP, "model_type": "siglip_vision_model"},
                                                "old": LLAVA}],
    "InternVLForConditionalGeneration": [
        {"text": {"model_type": kind}, "no_head_dim": kind == "qwen2", "old": LLAVA, "outer": {"tie_word_embeddings": kind == "qwen3"},
         "vision": {**SIGLIP, "image_size": [28, 28], "patch_size": [14, 14]}} for kind in ("qwen2", "qwen3")],
    "Idefics3ForConditionalGeneration": [{"text": {"model_type": "llama"}, "vision": SIGLIP}],
    "SmolVLMForConditionalGeneration": [{"text": {"model_type": "llama"}, "vision": SIGLIP, "outer": {"tie_word_embeddings": True}}],
    "Glm4vForConditionalGeneration": [
        {"text": {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": part, "mrope_section": section}},
         "vision": GLM_VISION, "no_head_dim": True} for part, section in ((0.5, [1, 1, 1]), (1.0, [2, 2, 2]))],
    "Glm46VForConditionalGeneration": [
        {"text": {"model_type": "glm4v_text", "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5,
                                                                  "mrope_section": [1, 1, 1]}},
         "vision": {**GLM_VISION, "model_type": "glm4v_vision"}, "no_head_dim": True}],
    **{name: [{"text": {"model_type": kind}, "no_head_dim": kind != "qwen3", "vision": vision, "outer": {"tie_word_embeddings": False}}]
       for name, kind, vision in (
           ("GotOcr2ForConditionalGeneration", "qwen2", {**SIGLIP, "output_channels": 32, "mlp_dim": 48, "global_attn_indexes": [1], "window_size": 2}),
           ("LightOnOcrForConditionalGeneration", "qwen3", PIXTRAL), ("DeepseekVLForConditionalGeneration", "llama", SIGLIP),
           ("Exaone4_5_ForConditionalGeneration", "exaone4", QWEN_VISION),
           ("VideoLlama3ForConditionalGeneration", "qwen2", SIGLIP))},
    "MiniCPMV4_6ForConditionalGeneration": [{"text": {"model_type": "qwen3_5_text", **HYBRID}, "vision": SIGLIP}],
    "AudioFlamingo3ForConditionalGeneration": [{"text": {"model_type": "qwen2"}, "no_head_dim": True, "audio": AUDIO, "old": LLAVA}],
    "Qwen3ASRForConditionalGeneration": [{"text": {"model_type": "qwen3"}, "audio": AUDIO}],
    "Qwen2AudioForConditionalGeneration": [{"text": {"model_type": "qwen2"}, "no_head_dim": True, "audio": AUDIO, "old": LLAVA}],
    "VoxtralForConditionalGeneration": [{"text": {"model_type": "llama"}, "audio": {**AUDIO, "intermediate_size": 128}, "old": LLAVA}],
    "FastVlmForConditionalGeneration": [{"text": {"model_type": "qwen2"}, "no_head_dim": True, "vision": {"model_type": "vit", **SIGLIP},
                                         "outer": {"tie_word_embeddings": tied}} for tied in (False, True)],
    "Ovis2ForConditionalGeneration": [{"text": {"model_type": "qwen2"}, "no_head_dim": True, "vision": {**SIGLIP, "vocab_size": 32},
                                       "outer": {"hidden_size": 48, "vocab_size": 96, "tie_word_embeddings": tied}} for tied in (False, True)],
    "PerceptionLMForConditionalGeneration": [{"text": {"model_type": "llama"}, "vision": {"model_type": "vit", **SIGLIP, "model_args": {"embed_dim": 32}},
                                              "outer": {"tie_word_embeddings": tied}} for tied in (False, True)],
    "Granite4VisionForConditionalGeneration": [
        {"text": {"embedding_multiplier": 6.0, "logits_scaling": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3, **more}, "no_head_dim": True,
         "vision": {**CLIP, "hidden_size": 64, "num_attention_heads": 2}, "outer": {"image_token_index": 90, "tie_word_embeddings": tied, "downsample_rate": "1/2",
                                                                                    "deepstack_layer_map": [[-1, 0]]}}
        for more, tied in (({}, False), ({"attention_bias": True, "mlp_bias": True}, True))],
    "HyperCLOVAXVisionV2ForConditionalGeneration": [
        {"text": {"model_type": "hyperclovax", "embedding_multiplier": 6.0, "logits_scaling": 0.5, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
                  "use_post_norm": True}, "vision": {"model_type": "qwen2_5_vl_vision", "depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
                                                     "out_hidden_size": 48},
         "outer": {"tie_word_embeddings": False}, "old": HYPERCLOVA,
         "config": lambda config: {**config, "architectures": ["HCXVisionV2ForCausalLM"], "model_type": "vlm"}}],
    "GlmOcrForConditionalGeneration": [
        {"text": {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": part, "mrope_section": section}, "head_dim": 16},
         "vision": {**GLM_VISION, "out_hidden_size": 48}} for part, section in ((0.5, [1, 1, 2]), (1.0, [2, 3, 3]))],
    "PaddleOCRVLForConditionalGeneration": [
        {"text": {**MROPE, "use_bias": biased}, "vision": SIGLIP, "old": QWEN2_VL, "config": flat, "outer": {"tie_word_embeddings": biased}} for biased in (False, True)],
    "HunYuanVLForConditionalGeneration": [
        {"text": {"rope_parameters": {"rope_theta": 5000.0, "mrope_section": [2, 2, 2, 2], **rope}}, "vision": {**SIGLIP, "text_hidden_size": 48, "out_hidden_size": 32},
         "old": QWEN2_VL, "config": flat_hunyuan, "outer": {"tie_word_embeddings": tied}}
        for rope, tied in (({"rope_type": "default"}, True), ({"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}, False))],
    "Qwen2_5OmniThinkerForConditionalGeneration": [
        {"text": MROPE_12, "no_head_dim": True, "vision": {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 48},
         "audio": {**AUDIO, "output_dim": 48}, "old": THINKER,
         "config": thinker("Qwen2_5OmniModel", "qwen2_5_omni")}],
    "Qwen3OmniMoeThinkerForConditionalGeneration": [
        {"text": {"rope_parameters": {**MROPE["rope_parameters"], "mrope_interleaved": True}, **MOE, **more}, "vision": QWEN3_VISION, "audio": {**AUDIO, "output_dim": 48},
         "old": THINKER,
         "config": thinker("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe")} for more in ({}, {"norm_topk_prob": False, "mlp_only_layers": [0]})],
    "MiniMaxM3SparseForConditionalGeneration": [
        {"text": {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 20, "dense_intermediate_size": 40, "shared_intermediate_size": 24, "rotary_dim": 8,
                  "index_n_heads": 2, "index_head_dim": 16, "index_block_size": 4, "index_topk_blocks": 3, "mlp_layer_types": ["dense", "sparse", "sparse"],
                  "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
                  "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}}, "vision": SIGLIP,
         "outer": {"image_token_index": 90, "video_token_index": 91, "tie_word_embeddings": tied}} for tied in (False, True)],
    "AriaForConditionalGeneration": [
        {"text": {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 2, "intermediate_size": 20}, "no_head_dim": True, "vision": SIGLIP, "old": LLAVA,
         "outer": {"image_token_index": 90, "tie_word_embeddings": tied, "projector_patch_to_query_dict": {4: 4}}} for tied in (False, True)],
    "CohereCompassForConditionalGeneration": [
        {"text": {"sliding_window": 8, "logit_scale": 0.3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                  "rope_parameters": {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [2, 2, 2]}}},
         "no_head_dim": True, "vision": QWEN3_VISION, "outer": {"tie_word_embeddings": tied}}
        for full, tied in ((None, True), ({"rope_type": "default", "rope_theta": 300.0, "mrope_section": [2, 2, 2]}, False))],
    "Apertus1p5ForConditionalGeneration": [
        {"text": {"output_vocab_size": pruned}, "no_head_dim": True, "vision": {"codebook_size": 8, "base_channels": 32, "channel_multiplier": [1, 1], "embed_dim": 8,
                                                                                 "latent_channels": 8, "num_res_blocks": 1},
         "audio": {"codebook_size": 8}, "outer": {"image_token_offset": 72, "audio_token_offset": 80}} for pruned in (None, 95)],
    "MistralLarge4ForConditionalGeneration": [
        {"text": {**{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, "num_hidden_layers": 4, "index_topk": 12, "index_head_dim": 16, "index_n_heads": 16,
                  "kv_source_layers": sources}, "no_head_dim": True, "vision": PIXTRAL, "outer": {"tie_word_embeddings": False}} for sources in (None, [0, 1, 0, 3])],
    "Glm5NextForConditionalGeneration": [
        {"text": {**LATENT, "pad_token_id": 0, "qk_rope_head_dim": 0, "num_hidden_layers": 4, "index_topk": 12, "index_kpool": 4, "index_head_dim": 16, "index_n_heads": 16, "hc_mult": 2,
                  "swiglu_limit": 0.7, "linear_head_dim": 16, "linear_num_heads": 2}, "no_head_dim": True,
         "vision": {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 48, "image_size": 28, "projection_intermediate_size": 48},
         "outer": {"tie_word_embeddings": False}}],
    **{name: [{"text": {"model_type": kind, **more}, "no_head_dim": kind not in ("qwen3", "qwen3_5_text"), "outer": {"tie_word_embeddings": tied, **outer}, **towers}
              for tied in (False, True)]
       for name, kind, more, outer, towers in (
           ("VideoLlavaForConditionalGeneration", "llama", {}, {"image_token_index": 90, "video_token_index": 91}, {"vision": CLIP, "old": LLAVA}),
           ("QianfanOCRForConditionalGeneration", "qwen3", {}, {}, {"vision": {**SIGLIP, "image_size": [28, 28], "patch_size": [14, 14]}, "old": [QIANFAN, *LLAVA]}),
           ("MiniCPMV4_7ForConditionalGeneration", "qwen3_5_text", HYBRID, {}, {"vision": SIGLIP}),
           ("MiniCPMOcrForConditionalGeneration", "qwen3_5_text", HYBRID, {}, {"vision": SIGLIP}),
           ("GlmAsrForConditionalGeneration", "llama", {"rms_norm_eps": 1e-5}, {}, {"audio": {**AUDIO, "intermediate_size": 128}, "old": LLAVA}),
           ("MusicFlamingoForConditionalGeneration", "qwen2", {}, {}, {"audio": {**AUDIO, "model_type": "audioflamingo3_encoder"}, "old": LLAVA}),
           ("FunAsrNanoForConditionalGeneration", "qwen3", {}, {"adaptor_config": {"hidden_size": 48, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 1}},
            {"audio": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2, "num_timestamp_prediction_layers": 1, "num_mel_bins": 8}}),
           ("MossTranscribeDiarizeForConditionalGeneration", "qwen3", {}, {}, {"audio": {**AUDIO, "intermediate_size": 48}}),
           ("GraniteSpeechForConditionalGeneration", "granite", GRANITE, SPEECH, {"old": LLAVA}),
           ("GraniteSpeechPlusForConditionalGeneration", "granite", GRANITE, SPEECH, {"old": LLAVA}),
           ("JanusForConditionalGeneration", "llama", {}, {"vq_config": {"base_channels": 32, "latent_channels": 32, "num_embeddings": 8, "projection_dim": 48, "image_token_embed_dim": 48,
                                                                       "channel_multiplier": [1, 1], "num_res_blocks": 1}}, {"vision": {**SIGLIP, "projection_dim": 48}}),
           ("DeepseekVLHybridForConditionalGeneration", "llama", {}, {"high_res_vision_config": {**SIGLIP, "model_type": "sam_vision_model", "output_channels": 16, "mlp_dim": 32,
                                                                                                    "global_attn_indexes": [1], "window_size": 2}}, {"vision": SIGLIP}))},
    "Idefics2ForConditionalGeneration": [
        {"text": {"model_type": "mistral", "sliding_window": window}, "vision": SIGLIP,
         "outer": {"perceiver_config": {"hidden_size": 48, "resampler_n_heads": 2, "resampler_head_dim": 8, "num_key_value_heads": 1, "resampler_n_latents": 2, "resampler_depth": 1},
                   "tie_word_embeddings": tied}} for window, tied in ((None, False), (8, True))],
    "GraniteDoclingForConditionalGeneration": [
        {"text": {**GRANITE, **more, "pad_token_id": 0}, "no_head_dim": True, "vision": {**SIGLIP, "out_hidden_size": 48, "deepstack_visual_indexes": [0], "scale_factor": 2, "use_fine_route": False},
         "outer": {"tie_word_embeddings": tied}} for more, tied in (({}, True), ({"attention_bias": True, "mlp_bias": True}, False))],
    "VibeVoiceAsrForConditionalGeneration": [
        {"text": {"model_type": "qwen2"}, "no_head_dim": True, "old": LLAVA,
         "outer": {"acoustic_tokenizer_encoder_config": VIBE, "semantic_tokenizer_encoder_config": VIBE, "tie_word_embeddings": tied}} for tied in (False, True)],
    "Emu3ForConditionalGeneration": [
        {"text": {"pad_token_id": 0}, "no_head_dim": True, "old": EMU, "outer": {"vocabulary_map": {"<image>": 95}, "tie_word_embeddings": tied,
                                                               "vq_config": {"base_channels": 32, "codebook_size": 8, "hidden_size": 32, "channel_multiplier": [1], "num_res_blocks": 1,
                                                                             "attn_resolutions": [], "temporal_downsample_factor": 1}}} for tied in (False, True)],
    "FuyuForCausalLM": [{"text": {"model_type": "persimmon", "rope_parameters": {"rope_type": "default", "rope_theta": 25000.0, "partial_rotary_factor": 0.5}}, "no_head_dim": True, "old": LLAVA,
                         "config": flat_persimmon, "outer": {"image_size": 28, "patch_size": 14, "tie_word_embeddings": tied}} for tied in (False, True)],
    "DeepseekOcr2ForConditionalGeneration": [
        {"text": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_layer_types": types, "num_key_value_heads": 4, **more}, "no_head_dim": True,
         "vision": {"sam_config": {**SIGLIP, "output_channels": 8, "downsample_channels": [8, 32], "global_attn_indexes": [1], "window_size": 2},
                    "encoder_config": {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 8}},
         "old": QWEN2_VL, "config": flat_deepseek_ocr, "outer": {"tie_word_embeddings": tied}}
        for types, more, tied in ((["dense", "sparse", "sparse"], {}, False),
                                  (["dense", "sparse", "sparse"], {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.0}, True))],
    "MuseGlimmerForConditionalGeneration": [
        {"text": {"num_hidden_layers": 5, "sliding_window": 8, "final_logit_softcapping": 4.0, "output_multiplier": 0.5}, "vision": {**SIGLIP, "num_hidden_layers": 1},
         "outer": {"tie_word_embeddings": False}}],
    "MllamaForConditionalGeneration": [
        {"text": {"num_hidden_layers": 4, "cross_attention_layers": [1], "pad_token_id": 0}, "no_head_dim": True, "old": LLAVA, "outer": {"image_token_index": 96, "tie_word_embeddings": tied},
         "vision": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_global_layers": 1, "attention_heads": 2, "image_size": 28, "patch_size": 14,
                    "vision_output_dim": 64, "intermediate_layers_indices": [0]}} for tied in (False, True)],
    "HYV4VLForConditionalGeneration": [
        {"text": {**LATENT, "pad_token_id": 0, "index_topk": 12, "index_head_dim": 16, "index_n_heads": 16, "swiglu_limit": 0.7,
                  "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [2, 1, 1]}},
         "no_head_dim": True, "vision": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "out_hidden_size": 48,
                                         "max_image_size": 64}, "outer": {"tie_word_embeddings": tied}} for tied in (False, True)],
    "Ernie4_5_VLMoeForConditionalGeneration": [
        {"text": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": [20, 12], "moe_num_shared_experts": 2, "mlp_layer_types": types,
                  "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [2, 2, 2]}}, "no_head_dim": True,
         "vision": {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48}, "outer": {"tie_word_embeddings": tied}}
        for types, tied in ((None, True), (["sparse", "dense", "sparse"], False))],
    "Glm4vMoeForConditionalGeneration": [
        {"text": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}},
         "vision": GLM_VISION}],
    "AyaVisionForConditionalGeneration": [{"text": {"model_type": "cohere2", **GEMMA}, "vision": {**SIGLIP, "model_type": "siglip_vision_model"},
                                           "old": LLAVA, "no_head_dim": False}],
    "Cohere2VisionForConditionalGeneration": [{"text": {"model_type": "cohere2", **GEMMA}, "vision": {**SIGLIP, "model_type": "siglip_vision_model"}}],
    "Lfm2VlForConditionalGeneration": [
        {"text": {"model_type": "lfm2", "layer_types": ["conv", "conv", "full_attention"], "block_ff_dim": 64, "block_auto_adjust_ff_dim": False},
         "no_head_dim": True, "vision": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_patches": 16,
                                         "model_type": "siglip2_vision_model"}}],
    "Lfm3VlForConditionalGeneration": [
        {"text": {"model_type": "lfm3", "head_dim": 16, "pad_token_id": 0, "layer_types": ["conv", "sliding_attention", "full_attention"], "sliding_window": 8,
                  "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                                      "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
         "no_head_dim": False, "vision": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}}],
    "Kimi_K25ForConditionalGeneration": [
        {"text": {"model_type": "deepseek_v3", **LATENT, "first_k_dense_replace": 1},
         "no_head_dim": True, "vision": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2},
         "old": [("language_model.model.blocks.", "language_model.model.layers.")], "outer": {"tie_word_embeddings": False}}],
}


def make(name, case, folder):
    config_class = getattr(transformers, name).config_class
    text = {**TEXT, **case["text"]}
    if case.get("no_head_dim"):
        text.pop("head_dim")
    towers = {f"{kind}_config": dict(case[kind]) for kind in ("vision", "audio") if kind in case}
    config = config_class(text_config=text, **towers, **case.get("outer", {}))
    torch.manual_seed(0)
    model = getattr(transformers, name)._from_config(config, attn_implementation="eager", dtype=torch.float32)
    single.randomise(model)
    model.eval().save_pretrained(folder)


def wanted(name, folder, change=0.0):
    model, loaded = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    drawn = [k for k in loaded["missing_keys"] if "lm_head" not in k or not model.config.tie_word_embeddings] + list(loaded["mismatched_keys"])
    if drawn:
        raise ValueError(f"no weights: {drawn[:3]}")
    ids = torch.tensor([single.IDS])
    model = model.eval()
    generator = torch.Generator().manual_seed(2)
    for p in model.parameters() if change else []:
        p.data.mul_(1 + change * torch.randn(p.shape, generator=generator))
    with torch.no_grad():
        if name.startswith("Llama4"):  # its forward without images asks for what is not there
            return model.language_model(input_ids=ids, use_cache=False).logits[0].float()
        logits = model(input_ids=ids, use_cache=False).logits[0].float()
    # That outer classes leave out, where the text's own class and other engines have it: GraniteSpeech's, and all of Cohere's but Compass's.
    if name.startswith("GraniteSpeech"):
        return logits / model.config.text_config.logits_scaling
    return logits if name.startswith("CohereCompass") else logits * getattr(model.config.text_config, "logit_scale", 1.0)


def rename(case, folder):
    path = pathlib.Path(folder) / "model.safetensors"
    tensors = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        for new, old in case["old"]:
            if name.startswith(new):
                name = old + name[len(new):]
                break
        if case.get("transposed") and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensor = tensor.transpose(1, 2).contiguous()
        tensors[name] = tensor
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def compare(inlay, name, case):
    with tempfile.TemporaryDirectory() as folder:
        try:
            make(name, case, folder)
        except Exception as error:  # pylint: disable=broad-except
            print(f"skip     {name}: cannot be made: {type(error).__name__}: {str(error)[:300]}", flush=True)
            return
        steps = ["saved"] + (["names"] if "old" in case else []) + (["config"] if "config" in case else [])
        for step in steps:
            if step == "names":
                rename(case, folder)
            if step == "config":
                path = pathlib.Path(folder) / "config.json"
                path.write_text(json.dumps(case["config"](json.loads(path.read_text()))))
            try:
                want = wanted(name, folder)
            except Exception as error:  # pylint: disable=broad-except
                want = f"{type(error).__name__}: {str(error)[:200]}"
            got, said = single.Comparison(inlay, "").logits(folder, single.IDS)
            label = f"{name} {step} {case['text'].get('model_type', '')} {case.get('outer', {})}"
            if isinstance(want, str):
                print(f"skip     {label}: {want}; Inlay: {said[:200]}", flush=True)
            elif got is None:
                print(f"refused  {label}: {said}", flush=True)
            else:
                error = ((got - want[:, :got.shape[1]]).abs().max() / want.std()).item()
                noise, shown = 1e-4, ""
                if error >= noise:
                    noise = ((wanted(name, folder, 3e-7) - want).abs().max() / want.std()).item()
                    shown = f" ({noise:.2g})"
                print(f"{'equal' if error < max(1e-4, noise) else 'DIFFERS':8} {label}: {error:.2g}{shown}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*")
    parser.add_argument("--inlay", default="build/bin/inlay")
    args = parser.parse_args()
    for name, cases in CASES.items():
        if args.classes and name not in args.classes:
            continue
        if not hasattr(transformers, name):
            print(f"skip     {name}: transformers has none")
            continue
        for case in cases:
            compare(args.inlay, name, case)


if __name__ == "__main__":
    sys.exit(main())
