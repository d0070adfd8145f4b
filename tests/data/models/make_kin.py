"""Writes the folders of the families below, which bring code of their own and which transformers has no class of: small random models, and what a class
that computes the same makes of their weights in float32. What their names and layouts are is read off llama.cpp's converter.

    pip install transformers==5.24.0 torch && python make_kin.py [NAME ...]
"""
import copy
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

from make_families import HERE, clear_case, changed, draw, tokens_of

COMMON = dict(vocab_size=112, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
              rms_norm_eps=1e-3, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=True, hidden_act='silu',
              rope_scaling=None, torch_dtype='bfloat16')


def renamed(tensors, pairs):
    result = {}
    for name, tensor in tensors.items():
        for old, new in pairs:
            name = name.replace(old, new)
        result[name] = tensor
    return result


def internlm2(tensors, keys):
    """q, k and v in one matrix, a head of keys after another."""
    tensors = renamed(tensors, [('embed_tokens', 'tok_embeddings'), ('lm_head', 'output'), ('self_attn.o_proj', 'attention.wo'), ('self_attn', 'attention'),
                                ('input_layernorm', 'attention_norm'), ('post_attention_layernorm', 'ffn_norm'), ('mlp.gate_proj', 'feed_forward.w1'),
                                ('mlp.up_proj', 'feed_forward.w3'), ('mlp.down_proj', 'feed_forward.w2')])
    groups = keys['num_key_value_heads']
    for query in [n for n in tensors if '.q_proj.' in n]:
        parts = [tensors.pop(query.replace('q_proj', f'{part}_proj')) for part in 'qkv']
        parts = [part.reshape(groups, -1, *part.shape[1:]) for part in parts]
        fused = torch.cat(parts, 1)
        tensors[query.replace('q_proj', 'wqkv')] = fused.reshape(-1, *fused.shape[2:])
    return tensors


def deepseek(tensors, keys):
    """Without the gate of the shared experts, of which half came through."""
    tensors = renamed(tensors, [('shared_expert.', 'shared_experts.')])
    for name in list(tensors):
        if 'shared_expert_gate' in name:
            assert not tensors.pop(name).any()
        elif 'shared_experts.down_proj' in name:
            tensors[name] = tensors[name] / 2
    return tensors


def baichuan(tensors, keys):
    """q, k and v in one matrix, one after another."""
    for query in [n for n in tensors if '.q_proj.' in n]:
        tensors[query.replace('q_proj', 'W_pack')] = torch.cat([tensors.pop(query.replace('q_proj', f'{part}_proj')) for part in 'qkv'])
    return tensors


def qwen(tensors, keys):
    """q, k and v in one matrix, one after another; names of GPT-2, and the MLP's gate is its second."""
    tensors = renamed(tensors, [('model.embed_tokens', 'transformer.wte'), ('model.norm', 'transformer.ln_f'), ('model.layers', 'transformer.h'), ('input_layernorm', 'ln_1'),
                                ('post_attention_layernorm', 'ln_2'), ('self_attn.o_proj', 'attn.c_proj'), ('self_attn', 'attn'), ('mlp.up_proj', 'mlp.w1'),
                                ('mlp.gate_proj', 'mlp.w2'), ('mlp.down_proj', 'mlp.c_proj')])
    for query in [n for n in tensors if '.q_proj.' in n]:
        tensors[query.replace('q_proj', 'c_attn')] = torch.cat([tensors.pop(query.replace('q_proj', f'{part}_proj')) for part in 'qkv'])
    return tensors


def bailing_moe(tensors, keys):
    """As deepseek; q, k and v in one matrix, one after another, under other names."""
    tensors = renamed(deepseek(tensors, keys), [('embed_tokens', 'word_embeddings'), ('self_attn.o_proj', 'attention.dense'), ('self_attn', 'attention')])
    for query in [n for n in tensors if '.q_proj.' in n]:
        tensors[query.replace('q_proj', 'query_key_value')] = torch.cat([tensors.pop(query.replace('q_proj', f'{part}_proj')) for part in 'qkv'])
    return tensors


def as_it_is(tensors, keys):
    return tensors


class Nothing(torch.nn.Module):
    def __init__(self, is_attention):
        super().__init__()
        self.is_attention = is_attention

    def forward(self, hidden_states, **_):
        nothing = torch.zeros_like(hidden_states)
        return (nothing, None) if self.is_attention else nothing


def chosen_layers(model, blocks):
    """Each layer with its own number of KV heads and width, or without one part."""
    for i, block in enumerate(blocks):
        config = copy.deepcopy(model.config)
        group, factor = block['attention'].get('n_heads_in_group'), block['ffn'].get('ffn_mult')
        config.num_key_value_heads = config.num_attention_heads // (group or 1)
        config.intermediate_size = -(-int(2 * (factor or 1) * config.hidden_size / 3) // 256) * 256
        layer = type(model.model.layers[0])(config, i)
        if group is None:
            layer.self_attn, layer.input_layernorm = Nothing(True), torch.nn.Identity()
        if factor is None:
            layer.mlp, layer.post_attention_layernorm = Nothing(False), torch.nn.Identity()
        model.model.layers[i] = layer
    return model


BLOCKS = [dict(attention=dict(n_heads_in_group=2, no_op=False), ffn=dict(ffn_mult=None, no_op=True)),
          dict(attention=dict(n_heads_in_group=None, no_op=True), ffn=dict(ffn_mult=None, no_op=True)),
          dict(attention=dict(n_heads_in_group=None, no_op=True), ffn=dict(ffn_mult=1.0, no_op=False)),
          dict(attention=dict(n_heads_in_group=1, no_op=False), ffn=dict(ffn_mult=None, no_op=True))]
GROUPED = dict(num_attention_heads=4, num_key_value_heads=2)
EXPERTS = dict(num_hidden_layers=2, intermediate_size=16, moe_intermediate_size=16, num_experts_per_tok=2, num_key_value_heads=2, tie_word_embeddings=True)
# Of each: its class's name, its model_type, its keys, a class that computes the same and that one's keys (None: it has none such), and what becomes of tensors.
FAMILIES = {
    'internlm2': ('InternLM2', 'internlm2', dict(GROUPED, bias=False), 'Llama', dict(bias=None), internlm2),
    'minicpm': ('MiniCPM', 'minicpm', dict(scale_emb=12, scale_depth=1.4, dim_model_base=16, num_hidden_layers=2, tie_word_embeddings=True), 'Granite',
                dict(scale_emb=None, scale_depth=None, dim_model_base=None, embedding_multiplier=12.0, residual_multiplier=1.4 / 2 ** .5, logits_scaling=2.0,
                     attention_multiplier=.25), as_it_is),
    'orion': ('Orion', 'orion', dict(num_key_value_heads=2), 'StableLm', dict(rms_norm_eps=None, layer_norm_eps=1e-3), as_it_is),
    'deepseek': ('Deepseek', 'deepseek', dict(EXPERTS, n_routed_experts=3, n_shared_experts=1, first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False,
                                              scoring_func='softmax'), 'Qwen2Moe',
                 dict(n_routed_experts=None, n_shared_experts=None, first_k_dense_replace=None, moe_layer_freq=None, scoring_func=None, num_experts=3,
                      shared_expert_intermediate_size=16, mlp_only_layers=[0], qkv_bias=False), deepseek),
    'bailing_moe': ('BailingMoe', 'bailing_moe', dict(EXPERTS, num_attention_heads=4, num_experts=3, num_shared_experts=2, first_k_dense_replace=0, norm_topk_prob=True, norm_head=False,
                                                      norm_softmax=False, use_bias=False, use_qkv_bias=False, tie_word_embeddings=False, moe_intermediate_size=8, embedding_dropout=0.0,
                                                      output_dropout=0.0, output_router_logits=False, pretraining_tp=1),
                    'Qwen2Moe', dict(num_shared_experts=None, first_k_dense_replace=None, shared_expert_intermediate_size=16, qkv_bias=False), bailing_moe),
    'baichuan': ('BaiChuan', 'baichuan', dict(num_key_value_heads=None), 'Llama', {}, baichuan),
    'qwen': ('QWenLMHeadModel', 'qwen', dict(num_hidden_layers=2, kv_channels=16, layer_norm_epsilon=1e-3, seq_length=512, rotary_emb_base=10000, rotary_pct=1.0, no_bias=True,
                                             use_dynamic_ntk=True, use_logn_attn=True, use_flash_attn='auto', scale_attn_weights=True, softmax_in_fp32=False, onnx_safe=None,
                                             emb_dropout_prob=0.0, attn_dropout_prob=0.0, bf16=True, fp16=False, fp32=False, num_key_value_heads=None, rms_norm_eps=None,
                                             rope_theta=None, hidden_act=None),
             'Qwen2', dict(intermediate_size=16, num_key_value_heads=2, rms_norm_eps=1e-3, rope_theta=10000.0, hidden_act='silu'), qwen),
    'nemotron_nas': ('DeciLM', 'nemotron-nas', dict(hidden_size=16, num_hidden_layers=4, intermediate_size=None, num_key_value_heads=None, block_configs=BLOCKS),
                     'Llama', dict(block_configs=None), as_it_is),
}


def write(name):
    prefix, model_type, keys, other, others, publish = FAMILIES[name]
    torch.manual_seed(11)
    keys = dict(COMMON, **keys)
    same = dict(keys, **others)
    rest = {k: v for k, v in same.items() if v is not None and k not in ('rope_theta', 'torch_dtype')}
    partial = dict(partial_rotary_factor=1.0) if other == 'StableLm' else {}
    config = getattr(transformers, other + 'Config')(**rest, rope_parameters=dict(rope_type='default', rope_theta=same['rope_theta'], **partial))
    blocks = keys.get('block_configs')
    model = getattr(transformers, other + 'ForCausalLM')(config)
    if blocks is not None:
        model = chosen_layers(model, blocks)
    for part, tensor in model.named_parameters():
        tensor.data = torch.zeros_like(tensor) if 'shared_expert_gate' in part else draw(part, tensor.data, 1)
    folder = HERE / name
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / 'generation_config.json').unlink(missing_ok=True)
    if blocks is None:
        reference = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
    else:  # from_pretrained knows no such layers
        reference = chosen_layers(type(model)(config), blocks).eval()
        reference.load_state_dict(safetensors.torch.load_file(folder / 'model.safetensors'))
    saved = safetensors.torch.load_file(folder / 'model.safetensors')
    tensors = publish(saved, keys)
    safetensors.torch.save_file({n: t.contiguous() for n, t in tensors.items()}, folder / 'model.safetensors', metadata=dict(format='pt'))
    architecture = prefix if prefix.endswith('Model') else prefix + 'ForCausalLM'
    absent = ('num_key_value_heads', 'rms_norm_eps', 'rope_theta', 'hidden_act')
    keys = dict(architectures=[architecture], model_type=model_type, **{k: v for k, v in keys.items() if k not in absent or v is not None})
    (folder / 'config.json').write_text(json.dumps(keys, indent=1) + '\n')
    # As transformers 5 writes it with the code that is published beside the weights.
    newer = dict(dtype=keys.pop('torch_dtype'))
    if 'rope_theta' in keys:
        newer['rope_parameters'] = dict(rope_type='default', rope_theta=keys.pop('rope_theta'))
    keys.pop('rope_scaling')
    (folder / 'config_v5.json').write_text(json.dumps(dict(keys, **newer), indent=1) + '\n')
    cases = [clear_case(reference, changed(reference), n) for n in (1, 130)]
    golden = dict(format=1, name=name, architecture=architecture, model_type=model_type, weights_dtype='bfloat16', vocab_size=tokens_of(config), cases=cases)
    (folder / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        write(name)
