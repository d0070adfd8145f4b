"""Writes the folders of the families below: small random models, and what the arithmetic that their published code has gives in float32. No class of
transformers computes the same: each network is written here, from a description of that code and of llama.cpp's graphs.

    pip install transformers==5.24.0 torch && python make_composed.py [NAME ...]
"""
import json
import sys
import types

import safetensors.torch
import torch
import torch.nn.functional as F

from make_families import HERE, changed, clear_case, draw


def rms(x, weight, epsilon):
    return weight * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)


def rotate(x, theta, style='half'):
    """x [tokens, heads, dim]: by position, pairs being halves of a head or neighbours."""
    dim = x.shape[-1]
    frequencies = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(x.shape[0]).float(), frequencies)[:, None]
    cos, sin = angles.cos(), angles.sin()
    if style == 'half':
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def attend(q, k, v, scale, window=0):
    """[tokens, heads, dim] each, heads of keys shared by as many of queries each."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum('qhd,khd->hqk', q, k) * scale
    far = torch.arange(q.shape[0])[:, None] - torch.arange(q.shape[0])[None]
    hidden = (far < 0) | ((far >= window) if window else torch.zeros_like(far, dtype=torch.bool))
    weights = torch.softmax(scores.masked_fill(hidden, float('-inf')), -1)
    return torch.einsum('hqk,khd->qhd', weights, v).flatten(1)


def plain_attention(t, prefix, x, keys, theta, window=0, rope=True):
    heads, kv_heads = keys['num_attention_heads'], keys['num_key_value_heads']
    q, k, v = (F.linear(x, t[f'{prefix}{part}_proj.weight']).unflatten(-1, (count, -1)) for part, count in (('q', heads), ('k', kv_heads), ('v', kv_heads)))
    if rope:
        q, k = rotate(q, theta), rotate(k, theta)
    return F.linear(attend(q, k, v, q.shape[-1] ** -.5, window), t[prefix + 'o_proj.weight'])


def gated(t, prefix, x, function=F.silu, names=('gate_proj', 'up_proj', 'down_proj')):
    gate, up, down = (t[f'{prefix}{name}.weight'] for name in names)
    return F.linear(function(F.linear(x, gate)) * F.linear(x, up), down)


def mixture(x, chosen, weights, expert):
    """Of each token the sum of weights * expert(which, x)."""
    return torch.stack([sum(w * expert(e, row) for e, w in zip(own.tolist(), how)) for row, own, how in zip(x, chosen, weights)])


def smallthinker(t, keys, ids):
    """The router reads what the layer's attention does, before its norm; its weights are of the chosen ones' logits alone."""
    x = t['model.embed_tokens.weight'][ids]
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        logits, chosen = torch.topk(F.linear(x, t[p + 'block_sparse_moe.primary_router.weight']), keys['moe_num_active_primary_experts'])
        weights = torch.softmax(logits, -1) if keys['moe_primary_router_apply_softmax'] else torch.sigmoid(logits) / torch.sigmoid(logits).sum(-1, keepdim=True)
        x = x + plain_attention(t, p + 'self_attn.', rms(x, t[p + 'input_layernorm.weight'], keys['rms_norm_eps']), keys, keys['rope_theta'],
                                keys['sliding_window_size'] * keys['sliding_window_layout'][i], keys['rope_layout'][i])
        read = rms(x, t[p + 'post_attention_layernorm.weight'], keys['rms_norm_eps'])
        x = x + mixture(read, chosen, weights, lambda e, row: gated(t, f'{p}block_sparse_moe.experts.{e}.', row, F.relu, ('gate', 'up', 'down')))
    head = t['model.embed_tokens.weight'] if keys['tie_word_embeddings'] else t['lm_head.weight']
    return F.linear(rms(x, t['model.norm.weight'], keys['rms_norm_eps']), head)


def smallthinker_shapes(keys):
    width, inner, experts = keys['hidden_size'], keys['moe_ffn_hidden_size'], keys['moe_num_primary_experts']
    heads, kv_heads = (keys[name] * keys['head_dim'] for name in ('num_attention_heads', 'num_key_value_heads'))
    shapes = ends(keys)
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        shapes |= {p + 'input_layernorm': [width], p + 'post_attention_layernorm': [width], p + 'block_sparse_moe.primary_router': [experts, width],
                   p + 'self_attn.q_proj': [heads, width], p + 'self_attn.k_proj': [kv_heads, width], p + 'self_attn.v_proj': [kv_heads, width],
                   p + 'self_attn.o_proj': [width, heads]}
        for e in range(experts):
            shapes |= {f'{p}block_sparse_moe.experts.{e}.{part}': [width, inner] if part == 'down' else [inner, width] for part in ('gate', 'up', 'down')}
    return shapes


def openelm(t, keys, ids):
    """Layers differ in their heads and widths; q and k are normalised head by head before they are rotated."""
    x, dim = t['transformer.token_embeddings.weight'][ids], keys['head_dim']
    for i in range(keys['num_transformer_layers']):
        p, heads, kv_heads = f'transformer.layers.{i}.', keys['num_query_heads'][i], keys['num_kv_heads'][i]
        qkv = F.linear(rms(x, t[p + 'attn_norm.weight'], 1e-6), t[p + 'attn.qkv_proj.weight']).unflatten(-1, (-1, dim))
        q, k, v = qkv.split([heads, kv_heads, kv_heads], 1)
        q, k = (rotate(rms(part, t[f'{p}attn.{name}_norm.weight'], 1e-6), keys['rope_freq_constant']) for part, name in ((q, 'q'), (k, 'k')))
        x = x + F.linear(attend(q, k, v, dim ** -.5), t[p + 'attn.out_proj.weight'])
        gate, up = F.linear(rms(x, t[p + 'ffn_norm.weight'], 1e-6), t[p + 'ffn.proj_1.weight']).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, t[p + 'ffn.proj_2.weight'])
    return F.linear(rms(x, t['transformer.norm.weight'], 1e-6), t['transformer.token_embeddings.weight'])


def openelm_shapes(keys):
    width, dim, divisor = keys['model_dim'], keys['head_dim'], keys['ffn_dim_divisor']
    shapes = {'transformer.token_embeddings': [keys['vocab_size'], width], 'transformer.norm': [width]}
    for i in range(keys['num_transformer_layers']):
        p, heads, kv_heads = f'transformer.layers.{i}.', keys['num_query_heads'][i], keys['num_kv_heads'][i]
        inner = int(keys['ffn_multipliers'][i] * width + divisor / 2) // divisor * divisor
        shapes |= {p + 'attn_norm': [width], p + 'ffn_norm': [width], p + 'attn.q_norm': [dim], p + 'attn.k_norm': [dim],
                   p + 'attn.qkv_proj': [(heads + 2 * kv_heads) * dim, width], p + 'attn.out_proj': [width, heads * dim],
                   p + 'ffn.proj_1': [2 * inner, width], p + 'ffn.proj_2': [width, inner]}
    return shapes


def arctic(t, keys, ids):
    """Experts read what the layer's attention does, through a norm of their own, and what they give is added at the layer's end."""
    x, epsilon = t['model.embed_tokens.weight'][ids], keys['rms_norm_eps']
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        read = rms(x, t[p + 'post_attention_layernorm.weight'], epsilon)
        weights, chosen = torch.topk(torch.softmax(F.linear(read, t[p + 'block_sparse_moe.gate.weight']), -1), keys['num_experts_per_tok'])
        beside = mixture(read, chosen, weights / weights.sum(-1, keepdim=True),
                         lambda e, row: gated(t, f'{p}block_sparse_moe.experts.{e}.', row, names=('w1', 'w3', 'w2')))
        x = x + plain_attention(t, p + 'self_attn.', rms(x, t[p + 'input_layernorm.weight'], epsilon), keys, keys['rope_theta'])
        x = x + gated(t, p + 'residual_mlp.', rms(x, t[p + 'residual_layernorm.weight'], epsilon), names=('w1', 'w3', 'w2')) + beside
    return F.linear(rms(x, t['model.norm.weight'], epsilon), t['model.embed_tokens.weight'])


def arctic_shapes(keys):
    width, inner = keys['hidden_size'], keys['intermediate_size']
    kv_width = width // keys['num_attention_heads'] * keys['num_key_value_heads']
    shapes = ends(keys)
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        shapes |= {p + norm: [width] for norm in ('input_layernorm', 'post_attention_layernorm', 'residual_layernorm')}
        shapes |= {f'{p}self_attn.{part}_proj': [width if part in 'qo' else kv_width, width] for part in 'qkvo'} | {f'{p}residual_mlp.w{n}': [width, width] for n in (1, 2, 3)}
        shapes |= {p + 'block_sparse_moe.gate': [keys['num_local_experts'], width]}
        for e in range(keys['num_local_experts']):
            shapes |= {f'{p}block_sparse_moe.experts.{e}.w{n}': [width, inner] if n == 2 else [inner, width] for n in (1, 2, 3)}
    return shapes


def grove_moe(t, keys, ids):
    """Qwen 3's attention; a token's experts, and with the same weights those of their groups, a twentieth of what they give."""
    x, epsilon = t['model.embed_tokens.weight'][ids], keys['rms_norm_eps']
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        read = rms(x, t[p + 'input_layernorm.weight'], epsilon)
        q, k, v = (F.linear(read, t[f'{p}self_attn.{part}_proj.weight']).unflatten(-1, (-1, keys['head_dim'])) for part in 'qkv')
        q, k = (rotate(rms(part, t[f'{p}self_attn.{name}_norm.weight'], epsilon), keys['rope_theta']) for part, name in ((q, 'q'), (k, 'k')))
        x = x + F.linear(attend(q, k, v, keys['head_dim'] ** -.5), t[p + 'self_attn.o_proj.weight'])
        read = rms(x, t[p + 'post_attention_layernorm.weight'], epsilon)
        weights, chosen = torch.topk(torch.softmax(F.linear(read, t[p + 'mlp.gate.weight']), -1), keys['num_experts_per_tok'])
        weights = weights / weights.sum(-1, keepdim=True)
        x = x + mixture(read, chosen, weights, lambda e, row: gated(t, f'{p}mlp.experts.{e}.', row))
        x = x + 0.05 * mixture(read, chosen // 2, weights, lambda e, row: gated(t, f'{p}mlp.chunk_experts.{e}.', row))
    return F.linear(rms(x, t['model.norm.weight'], epsilon), t['model.embed_tokens.weight'])


def grove_moe_shapes(keys):
    width, dim = keys['hidden_size'], keys['head_dim']
    heads, kv_heads = (keys[name] * dim for name in ('num_attention_heads', 'num_key_value_heads'))
    shapes = ends(keys)
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        shapes |= {p + 'input_layernorm': [width], p + 'post_attention_layernorm': [width], p + 'self_attn.q_norm': [dim], p + 'self_attn.k_norm': [dim],
                   p + 'self_attn.q_proj': [heads, width], p + 'self_attn.k_proj': [kv_heads, width], p + 'self_attn.v_proj': [kv_heads, width],
                   p + 'self_attn.o_proj': [width, heads], p + 'mlp.gate': [keys['num_experts'], width]}
        for kind, count, inner in (('experts', keys['num_experts'], keys['moe_intermediate_size']), ('chunk_experts', keys['num_experts'] // 2, keys['parallel_expert_intermediate_size'])):
            for e in range(count):
                shapes |= {f'{p}mlp.{kind}.{e}.{part}_proj': [width, inner] if part == 'down' else [inner, width] for part in ('gate', 'up', 'down')}
    return shapes


def plm(t, keys, ids):
    """Latent attention with queries made at once, pairs of neighbours rotated; squared ReLUs."""
    x, epsilon, heads = t['model.embed_tokens.weight'][ids], keys['rms_norm_eps'], keys['num_attention_heads']
    rank, key, rope, value = (keys[name] for name in ('kv_lora_rank', 'qk_nope_head_dim', 'qk_rope_head_dim', 'v_head_dim'))
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        read = rms(x, t[p + 'input_layernorm.weight'], epsilon)
        q, q_rope = F.linear(read, t[p + 'self_attn.q_proj.weight']).unflatten(-1, (heads, -1)).split([key, rope], -1)
        latent, k_rope = F.linear(read, t[p + 'self_attn.kv_a_proj_with_mqa.weight']).split([rank, rope], -1)
        latent = rms(latent, t[p + 'self_attn.kv_a_layernorm.weight'], epsilon)
        k, v = F.linear(latent, t[p + 'self_attn.kv_b_proj.weight']).unflatten(-1, (heads, -1)).split([key, value], -1)
        k_rope = rotate(k_rope[:, None], keys['rope_theta'], 'neighbours').expand(-1, heads, -1)
        q, k = torch.cat([q, rotate(q_rope, keys['rope_theta'], 'neighbours')], -1), torch.cat([k, k_rope], -1)
        x = x + F.linear(attend(q, k, v, (key + rope) ** -.5), t[p + 'self_attn.o_proj.weight'])
        read = rms(x, t[p + 'post_attention_layernorm.weight'], epsilon)
        x = x + F.linear(F.relu(F.linear(read, t[p + 'mlp.up_proj.weight'])) ** 2, t[p + 'mlp.down_proj.weight'])
    return F.linear(rms(x, t['model.norm.weight'], epsilon), t['model.embed_tokens.weight'])


def plm_shapes(keys):
    width, inner, heads = keys['hidden_size'], keys['intermediate_size'], keys['num_attention_heads']
    rank, key, rope, value = (keys[name] for name in ('kv_lora_rank', 'qk_nope_head_dim', 'qk_rope_head_dim', 'v_head_dim'))
    shapes = ends(keys)
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        shapes |= {p + 'input_layernorm': [width], p + 'post_attention_layernorm': [width], p + 'self_attn.q_proj': [heads * (key + rope), width],
                   p + 'self_attn.kv_a_proj_with_mqa': [rank + rope, width], p + 'self_attn.kv_a_layernorm': [rank],
                   p + 'self_attn.kv_b_proj': [heads * (key + value), rank], p + 'self_attn.o_proj': [width, heads * value],
                   p + 'mlp.up_proj': [inner, width], p + 'mlp.down_proj': [width, inner]}
    return shapes


def layer_norm(t, name, x, epsilon):
    return F.layer_norm(x, x.shape[-1:], t[name + '.weight'], t[name + '.bias'], epsilon)


def low_rank(t, name, x, function=lambda x: x):
    return F.linear(function(F.linear(x, t[name + '.lora.0.weight'])), t[name + '.lora.2.weight'], t.get(name + '.lora.2.bias'))


def time_mix(t, p, x, first_v, keys):
    """RWKV-7's, as BlinkDL/RWKV-LM's rwkv_v7_numpy.py has it: states are [heads, values, keys]. What v is before it is mixed goes with the output."""
    heads, dim = keys['hidden_size'] // keys['head_dim'], keys['head_dim']
    before = F.pad(x, (0, 0, 1, 0))[:-1]
    xr, xw, xk, xv, xa, xg = (x + (before - x) * t[f'{p}x_{way}'].flatten() for way in 'rwkvag')
    r, k, v = (F.linear(mixed, t[f'{p}{part}_proj.weight']) for part, mixed in (('r', xr), ('k', xk), ('v', xv)))
    decay = torch.exp(-torch.sigmoid(low_rank(t, p + 'w_lora', xw, torch.tanh)) / torch.e ** 0.5)
    rate = torch.sigmoid(low_rank(t, p + 'a_lora', xa))
    own_v = v
    if first_v is not None:
        v = v + (first_v - v) * torch.sigmoid(low_rank(t, p + 'v_lora', xv))
    kk = F.normalize((k * t[p + 'k_k']).unflatten(-1, (heads, dim)), dim=-1, eps=1e-12)
    k = k * (1 + (rate - 1) * t[p + 'k_a'])
    r, k, v, decay, rate = (part.unflatten(-1, (heads, dim)) for part in (r, k, v, decay, rate))
    state, outputs = torch.zeros(heads, dim, dim), []
    for i in range(x.shape[0]):
        state = state * decay[i, :, None] - (state @ kk[i, :, :, None]) * (kk[i] * rate[i])[:, None] + v[i, :, :, None] * k[i, :, None]
        outputs.append((state @ r[i, :, :, None])[..., 0])
    y = F.group_norm(torch.stack(outputs).flatten(1), heads, t[p + 'g_norm.weight'], t[p + 'g_norm.bias'], dim * keys['norm_eps'])
    y = y + ((r * k * t[p + 'r_k']).sum(-1, keepdim=True) * v).flatten(1)
    return F.linear(y * low_rank(t, p + 'g_lora', xg, torch.sigmoid), t[p + 'o_proj.weight']), own_v


def rwkv7(t, keys, ids):
    """No attention: a state a head, and the row of the token before."""
    epsilon, first_v = keys['norm_eps'], None
    x = layer_norm(t, 'model.layers.0.pre_norm', t['model.embeddings.weight'][ids], epsilon)
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        y, own_v = time_mix(t, p + 'attn.', layer_norm(t, p + 'attn_norm', x, epsilon), first_v, keys)
        x, first_v = x + y, own_v if i == 0 else first_v
        read = layer_norm(t, p + 'ffn_norm', x, epsilon)
        read = read + (F.pad(read, (0, 0, 1, 0))[:-1] - read) * t[p + 'ffn.x_k']
        x = x + F.linear(F.relu(F.linear(read, t[p + 'ffn.key.weight'])) ** 2, t[p + 'ffn.value.weight'])
    return F.linear(layer_norm(t, 'model.norm', x, epsilon), t['lm_head.weight'])


def rwkv7_shapes(keys):
    width, inner, vocab = keys['hidden_size'], keys['intermediate_size'], keys['vocab_size']
    norm = lambda name: {name: [width], name + '.bias!': [width]}
    shapes = {'model.embeddings': [vocab, width], 'lm_head': [vocab, width]} | norm('model.norm') | norm('model.layers.0.pre_norm')
    for i in range(keys['num_hidden_layers']):
        p = f'model.layers.{i}.'
        shapes |= norm(p + 'attn_norm') | norm(p + 'ffn_norm') | norm(p + 'attn.g_norm')
        shapes |= {f'{p}attn.x_{way}!': [1, 1, width] for way in 'rwkvag'} | {f'{p}attn.{part}_proj': [width, width] for part in 'rkvo'}
        shapes |= {p + 'attn.k_k!': [width], p + 'attn.k_a!': [width], p + 'attn.r_k!': [width // keys['head_dim'], keys['head_dim']]}
        for part, key in (('w', 'decay'), ('a', 'a'), ('v', 'v'), ('g', 'gate')):
            if part == 'v' and i == 0:
                continue
            rank, name = keys[key + '_low_rank_dim'], f'{p}attn.{part}_lora.lora.'
            shapes |= {name + '0': [rank, width], name + '2': [width, rank]} | ({} if part == 'g' else {name + '2.bias!': [width]})
        shapes |= {p + 'ffn.x_k!': [width], p + 'ffn.key': [inner, width], p + 'ffn.value': [width, inner]}
    return shapes


def drawn(part, shape):
    """The tensor's name and its numbers; names that are whole end in '!'. Of RWKV: shares of a row in [0, 1], factors of keys about 1."""
    name, whole = part.removesuffix('!'), part.endswith('!')
    values = draw(name, torch.empty(shape), 1)
    if whole and '.x_' in name:
        values = torch.rand(shape)
    elif whole and name.endswith(('.k_k', '.k_a')):
        values = 1 + 2 * values
    return name if whole else name + '.weight', values.to(torch.bfloat16)


def ends(keys):
    """Embedding, norm and head under Llama's names."""
    width, vocab = keys['hidden_size'], keys['vocab_size']
    return {'model.embed_tokens': [vocab, width], 'model.norm': [width]} | ({} if keys['tie_word_embeddings'] else {'lm_head': [vocab, width]})


COMMON = dict(vocab_size=112, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-3, rope_theta=10000.0,
              tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=True, torch_dtype='bfloat16')
# Nothing of that but tokens.
OWN = dict(hidden_size=None, num_hidden_layers=None, num_attention_heads=None, num_key_value_heads=None, max_position_embeddings=None, rms_norm_eps=None, rope_theta=None,
           tie_word_embeddings=None)
# Of each: its class's name, its model_type, its keys, its network, its tensors' shapes and the lengths of its prompts.
FAMILIES = {
    'smallthinker': ('SmallThinkerForCausalLM', 'smallthinker',
                     dict(head_dim=16, model_name='smallthinker', moe_ffn_hidden_size=16, moe_num_primary_experts=4, moe_num_active_primary_experts=2,
                          moe_primary_router_apply_softmax=False, norm_topk_prob=True, rope_layout=[0, 1], rope_scaling=None, rope_theta=1500000.0, sliding_window_layout=[0, 1],
                          sliding_window_size=32), smallthinker, smallthinker_shapes, (1, 33, 130)),
    'arctic': ('ArcticForCausalLM', 'arctic',
               dict(intermediate_size=8, num_local_experts=3, num_experts_per_tok=2, moe_layer_frequency=1, parallel_attn_mlp_res=True, use_residual=True, hidden_act='silu',
                    rope_scaling=None, sliding_window=None, attention_dropout=0.0, num_hidden_layers=2), arctic, arctic_shapes, (1, 33, 130)),
    'grove_moe': ('GroveMoeForCausalLM', 'grove_moe',
                  dict(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, intermediate_size=32, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                       attention_bias=False, hidden_act='silu', rope_scaling=None, use_sliding_window=False, sliding_window=None, max_window_layers=28,
                       parallel_expert_intermediate_size=16), grove_moe, grove_moe_shapes, (1, 33, 130)),
    'plm': ('PLMForCausalLM', 'plm',
            dict(num_key_value_heads=2, intermediate_size=32, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, hidden_act='relu2',
                 attention_bias=False, attention_dropout=0.0, rope_scaling=None, rope_theta=100000.0), plm, plm_shapes, (1, 130)),
    'openelm': ('OpenELMForCausalLM', 'openelm',
                dict(OWN, model_dim=32, num_transformer_layers=2, max_context_length=512, head_dim=16, num_query_heads=[2, 4], num_kv_heads=[1, 2], num_gqa_groups=2,
                     qkv_multipliers=[0.5, 1.0], ffn_multipliers=[0.5, 1.1], ffn_dim_divisor=16, ffn_with_glu=True, activation_fn_name='swish', normalization_layer_name='rms_norm',
                     normalize_qk_projections=True, share_input_output_layers=True, rope_freq_constant=10000, rope_max_length=1024), openelm, openelm_shapes, (1, 130)),
    # Heads' norms of 64e-5, as in published files, whose heads are of 64.
    'rwkv7': ('RWKV7ForCausalLM', 'rwkv7',
              dict(OWN, hidden_size=32, num_hidden_layers=3, head_dim=16, num_heads=2, intermediate_size=32, hidden_ratio=4.0, decay_low_rank_dim=8, a_low_rank_dim=8, v_low_rank_dim=8,
                   gate_low_rank_dim=16, norm_eps=4e-5, norm_first=True, norm_bias=True, hidden_act='sqrelu', attn=None, attn_mode='chunk', value_dim=[32, 32, 32],
                   max_position_embeddings=2048, fuse_norm=False, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=None), rwkv7, rwkv7_shapes, (1, 33, 130)),
}


class Network(torch.nn.Module):
    def __init__(self, network, keys, tensors):
        super().__init__()
        self.network, self.keys, self.names = network, keys, list(tensors)
        self.values = torch.nn.ParameterList(tensors.values())
        self.config = types.SimpleNamespace(vocab_size=keys['vocab_size'])
        self.config.get_text_config = lambda: types.SimpleNamespace(vocab_size=keys['vocab_size'])

    def forward(self, ids, use_cache=False):
        return types.SimpleNamespace(logits=self.network(dict(zip(self.names, self.values)), self.keys, ids[0])[None])


def write(name):
    architecture, model_type, keys, network, shapes, lengths = FAMILIES[name]
    torch.manual_seed(11)
    keys = {k: v for k, v in dict(COMMON, **keys).items() if v is not None or k not in COMMON}
    tensors = dict(drawn(part, shape) for part, shape in shapes(keys).items())
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, folder / 'model.safetensors', metadata=dict(format='pt'))
    reference = Network(network, keys, {n: t.float() for n, t in tensors.items()}).eval()
    saved = dict(architectures=[architecture], model_type=model_type, **keys)
    (folder / 'config.json').write_text(json.dumps(saved, indent=1) + '\n')
    # As transformers 5 writes it with the code that is published beside the weights.
    newer = dict(dtype=saved.pop('torch_dtype'))
    if 'rope_theta' in saved:
        newer['rope_parameters'] = dict(rope_type='default', rope_theta=saved.pop('rope_theta'))
    saved.pop('rope_scaling', None)
    (folder / 'config_v5.json').write_text(json.dumps(dict(saved, **newer), indent=1) + '\n')
    cases = [clear_case(reference, changed(reference), n) for n in lengths]
    golden = dict(format=1, name=name, architecture=architecture, model_type=model_type, weights_dtype='bfloat16', vocab_size=keys['vocab_size'], cases=cases)
    (folder / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        write(name)
