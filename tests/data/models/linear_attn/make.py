"""Writes this folder and ../linear_attn_relu: small random models of flash-linear-attention's linear_attn and what they compute, by this file, in float64.

    pip install numpy && python make.py

The forward is what LinearAttentionForCausalLM and fla.ops.linear_attn say (August 2026), every token's sums over all tokens before it written out; there is no state.
"""
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
STEPS = 20
COMMON = dict(architectures=['LinearAttentionForCausalLM'], model_type='linear_attn', attn=None, attn_mode='fused_chunk', bos_token_id=1, eos_token_id=2,
              fuse_norm=True, fuse_swiglu=True, hidden_act='swish', hidden_size=64, initializer_range=0.02, max_position_embeddings=512, norm_k=False, norm_q=False,
              num_kv_heads=None, pad_token_id=None, tie_feature_map_qk=False, torch_dtype='bfloat16', use_cache=True, vocab_size=320)
# The first as the paper has it; of the second the norm of each head has no weight, and the MLP is as wide as it is where nothing is said.
CONFIGS = {
    'linear_attn': COMMON | dict(elementwise_affine=True, expand_k=2.0, expand_v=2.0, feature_map='elu', hidden_ratio=4, intermediate_size=96, norm_eps=1e-3,
                                 norm_feature_map=True, num_heads=4, num_hidden_layers=2, tie_word_embeddings=False),
    'linear_attn_relu': COMMON | dict(elementwise_affine=False, expand_k=1.0, expand_v=1.0, feature_map='relu', hidden_ratio=2, intermediate_size=None, norm_eps=1e-3,
                                      norm_feature_map=False, num_heads=4, num_hidden_layers=1, tie_word_embeddings=True),
}


def shapes(config):
    hidden, width = config['hidden_size'], int(config['hidden_size'] * config['expand_k'])
    mlp = config['intermediate_size'] or -(-int(hidden * config['hidden_ratio'] * 2 / 3) // 256) * 256
    out = {'model.embeddings.weight': (config['vocab_size'], hidden), 'model.norm.weight': (hidden,)}
    if not config['tie_word_embeddings']:
        out['lm_head.weight'] = (config['vocab_size'], hidden)
    for i in range(config['num_hidden_layers']):
        at = f'model.layers.{i}.'
        out |= {at + 'attn_norm.weight': (hidden,), at + 'mlp_norm.weight': (hidden,), at + 'attn.o_proj.weight': (hidden, width),
                at + 'mlp.gate_proj.weight': (mlp, hidden), at + 'mlp.up_proj.weight': (mlp, hidden), at + 'mlp.down_proj.weight': (hidden, mlp)}
        out |= {at + f'attn.{x}_proj.weight': (width, hidden) for x in 'qkv'}
        if config['elementwise_affine']:
            out[at + 'attn.norm.weight'] = (width // config['num_heads'],)
    return out


def bf16_bits(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def write_safetensors(path, tensors):
    header, at = {'__metadata__': {'format': 'pt'}}, 0
    for name, bits in sorted(tensors.items()):
        header[name] = dict(dtype='BF16', shape=list(bits.shape), data_offsets=[at, at + bits.nbytes])
        at += bits.nbytes
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, 'little') + text + b''.join(bits.tobytes() for _, bits in sorted(tensors.items())))


def rms(x, epsilon, weight=1.0):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def feature(x, name):
    if name == 'relu':
        return np.maximum(x, 0)
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1  # elu(x) + 1


def attention(x, config, weights, at):
    heads, tokens = config['num_heads'], len(x)
    q, k, v = ((x @ weights[at + f'{part}_proj.weight'].T).reshape(tokens, heads, -1) for part in 'qkv')
    q, k = (feature(part, config['feature_map']) for part in (q, k))
    scores = np.einsum('thd,shd->hts', q * q.shape[-1] ** -0.5, k) * np.tril(np.ones((tokens, tokens)))
    y = np.einsum('hts,shd->thd', scores, v)
    if config['norm_feature_map']:
        y = y / (scores.sum(-1).T[..., None] + 1e-10)
    return rms(y, config['norm_eps'], weights.get(at + 'norm.weight', 1.0)).reshape(tokens, -1) @ weights[at + 'o_proj.weight'].T


def mlp(x, weights, at):
    gate = x @ weights[at + 'gate_proj.weight'].T
    return (gate / (1 + np.exp(-gate)) * (x @ weights[at + 'up_proj.weight'].T)) @ weights[at + 'down_proj.weight'].T


def forward(config, weights, ids, layers=None):
    h = weights['model.embeddings.weight'][ids]
    for i in range(config['num_hidden_layers']):
        at = f'model.layers.{i}.'
        h = h + attention(rms(h, config['norm_eps'], weights[at + 'attn_norm.weight']), config, weights, at + 'attn.')
        h = h + mlp(rms(h, config['norm_eps'], weights[at + 'mlp_norm.weight']), weights, at + 'mlp.')
        if layers is not None:
            layers.append(numbers(h[-1]))
    return rms(h, config['norm_eps'], weights['model.norm.weight']) @ weights.get('lm_head.weight', weights['model.embeddings.weight']).T


def numbers(row):
    return [float(f'{x:.7g}') for x in row]


def case(config, weights, near, name, ids):
    logits = forward(config, weights, ids)
    greedy, tokens = dict(tokens=[], top1_logits=[], margins=[]), list(ids)
    for _ in range(STEPS):
        last = forward(config, weights, tokens)[-1]
        second, first = np.argsort(last)[-2:]
        greedy['tokens'].append(int(first))
        greedy['top1_logits'] += numbers([last[first]])
        greedy['margins'] += numbers([last[first] - last[second]])
        tokens.append(int(first))
    positions = sorted({0, len(ids) // 2, len(ids) - 1})
    return dict(name=name, input_ids=ids, positions=positions, logits=[numbers(logits[p]) for p in positions], logit_std=float(logits[-1].std()), greedy=greedy,
                sensitivity=float(np.abs(forward(config, near, ids) - logits).max() / logits[-1].std()))


def clear_case(config, weights, near, count):
    """A prompt after which no greedy step is near a tie."""
    for seed in range(200):
        ids = np.random.default_rng(seed).integers(3, config['vocab_size'], count).tolist()
        found = case(config, weights, near, f'len{count}', ids)
        if min(found['greedy']['margins']) > 4e-3 * found['logit_std'] and found['sensitivity'] < 5e-5:
            return found
    raise SystemExit('no prompt')


def main():
    for name, config in CONFIGS.items():
        folder = HERE.parent / name
        folder.mkdir(exist_ok=True)
        rng = np.random.default_rng(11)
        bits = {}
        for tensor, shape in sorted(shapes(config).items()):
            noise = rng.standard_normal(shape)
            bits[tensor] = bf16_bits(1 + 0.2 * noise if 'norm' in tensor else (1.0 if 'embed' in tensor else 0.2) * noise)
        write_safetensors(folder / 'model.safetensors', bits)
        (folder / 'config.json').write_text(json.dumps(config, indent=1, sort_keys=True) + '\n')
        newer = {('dtype' if key == 'torch_dtype' else key): value for key, value in config.items()}
        (folder / 'config_v5.json').write_text(json.dumps(newer, indent=1, sort_keys=True) + '\n')
        weights = {tensor: widen(x) for tensor, x in bits.items()}
        near = {tensor: x * (1 + 3e-7 * rng.standard_normal(x.shape)) for tensor, x in weights.items()}
        cases = [clear_case(config, weights, near, n) for n in (1, 7, 33, 130)]
        layers = []
        forward(config, weights, cases[-1]['input_ids'], layers)
        cases[-1]['layer_outputs_last_position'] = layers
        golden = dict(format=1, name=name, architecture='LinearAttentionForCausalLM', model_type='linear_attn', weights_dtype='bfloat16', vocab_size=config['vocab_size'], cases=cases)
        (folder / 'golden.json').write_text(json.dumps(golden) + '\n')


if __name__ == '__main__':
    main()
