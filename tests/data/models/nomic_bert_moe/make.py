"""Writes this folder: a small random model of the kind of nomic-embed-text-v2-moe, and what the arithmetic that is public of it gives in float32. transformers
5.24 has no such layers: written from the paper (arXiv:2502.07972) and from what other engines say of its files (vLLM's bert_with_rope.py, llama.cpp's
nomic-bert-moe): every second layer has experts, a softmax over all of them gives the weights of the best two as they are, and their sum gets one bias.

    pip install torch safetensors transformers && python make.py
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from make_encoders import LENGTHS, numbers, write_modules  # noqa: E402

WIDTH, HEADS, LAYERS, INNER, EXPERTS, TOP, EVERY, VOCAB, EPSILON, THETA = 32, 2, 3, 16, 4, 2, 2, 64, 1e-5, 10000.0
LEAST_MARGIN = 0.06
# As the published file has it, but for sizes.
CONFIG = dict(
    activation_function='gelu', add_pooling_layer=False, architectures=['NomicBertModel'], attn_pdrop=0.0, causal=False, dense_seq_output=True, embd_pdrop=0.1,
    expert_choice_router=False, ffn_div=1, fused_bias_fc=True, fused_dropout_add_ln=True, initializer_range=0.02, layer_norm_epsilon=EPSILON,
    max_trained_positions=80, mlp_fc1_bias=True, mlp_fc2_bias=True, model_type='nomic_bert', moe_every_n_layers=EVERY, moe_impl='megablocks',
    moe_normalize_expert_weights=False, moe_resid_pdrop=0.0, moe_top_k=TOP, n_embd=WIDTH, n_head=HEADS, n_inner=INNER, n_layer=LAYERS, n_positions=80,
    num_experts=EXPERTS, num_shared_experts=0, pad_token_id=1, pad_vocab_size_multiple=64, parallel_block=False, prenorm=False, qkv_proj_bias=True,
    reorder_and_upcast_attn=False, resid_pdrop=0.0, rotary_emb_base=THETA, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None,
    rotary_scaling_factor=None, router_aux_loss_coef=0.1, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, torch_dtype='bfloat16',
    type_vocab_size=1, use_cache=True, use_flash_attn=True, use_rms_norm=False, use_xentropy=True, vocab_size=VOCAB)


def shapes():
    yield 'embeddings.word_embeddings.weight', (VOCAB, WIDTH)
    yield 'embeddings.token_type_embeddings.weight', (1, WIDTH)
    yield from ((f'emb_ln.{x}', (WIDTH,)) for x in ('weight', 'bias'))
    for i in range(LAYERS):
        layer = f'encoder.layers.{i}.'
        linear = [('attn.Wqkv', 3 * WIDTH, WIDTH), ('attn.out_proj', WIDTH, WIDTH)]
        if i % EVERY != 1:
            linear += [('mlp.fc1', INNER, WIDTH), ('mlp.fc2', WIDTH, INNER)]
        for name, n, k in linear:
            yield f'{layer}{name}.weight', (n, k)
            yield f'{layer}{name}.bias', (n,)
        if i % EVERY == 1:
            yield layer + 'mlp.router.layer.weight', (EXPERTS, WIDTH)
            yield from ((f'{layer}mlp.experts.mlp.{w}', (EXPERTS * INNER, WIDTH)) for w in ('w1', 'w2'))
            yield layer + 'mlp.experts.bias', (WIDTH,)
        for norm in ('norm1', 'norm2'):
            yield from ((f'{layer}{norm}.{x}', (WIDTH,)) for x in ('weight', 'bias'))


def draw(generator):
    tensors = {}
    for name, shape in shapes():
        x = torch.randn(shape, generator=generator)
        if name.endswith('.w2'):
            x *= 1.2 / INNER ** 0.5
        elif 'embeddings' in name:
            x *= 2.0 if 'word' in name else 0.3
        elif len(shape) == 2:
            # What all tokens of a text have in common must not choose their experts.
            x *= (3.0 if 'router' in name else 0.6 if 'attn' in name else 1.2) / shape[1] ** 0.5
        elif name.endswith('weight') and ('norm' in name or '_ln' in name):
            x = 1 + 0.2 * x
        elif len(shape) == 1:
            x *= 0.2
        tensors[name] = x.to(torch.bfloat16)
    return tensors


def norm(x, t, name):
    return F.layer_norm(x, (WIDTH,), t[name + '.weight'], t[name + '.bias'], EPSILON)


def linear(x, t, name):
    return x @ t[name + '.weight'].T + t[name + '.bias']


def attention(x, t, layer):
    count, size = x.shape[0], WIDTH // HEADS
    q, k, v = (part.reshape(count, HEADS, size).transpose(0, 1) for part in linear(x, t, layer + 'attn.Wqkv').chunk(3, dim=1))
    angles = torch.arange(count, dtype=torch.float32)[:, None] * THETA ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    cos, sin = angles.cos(), angles.sin()

    def turn(y):
        a, b = y[..., :size // 2], y[..., size // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    weights = torch.softmax(turn(q) @ turn(k).transpose(1, 2) / size ** 0.5, dim=-1)
    return linear((weights @ v).transpose(0, 1).reshape(count, WIDTH), t, layer + 'attn.out_proj')


def mixture(x, t, layer, margins):
    logits = x @ t[layer + 'mlp.router.layer.weight'].T
    scores = torch.softmax(logits, dim=-1)
    ranked = logits.sort(dim=-1, descending=True).values
    margins.append((ranked[:, TOP - 1] - ranked[:, TOP]).min().item())
    w1, w2 = (t[f'{layer}mlp.experts.mlp.{w}'].reshape(EXPERTS, INNER, WIDTH) for w in ('w1', 'w2'))
    rows = []
    for row, score in zip(x, scores):
        best, experts = score.topk(TOP)
        rows.append(sum(weight * (F.gelu(w1[e] @ row) @ w2[e]) for weight, e in zip(best, experts)))
    return torch.stack(rows) + t[layer + 'mlp.experts.bias']


def states_of(ids, t, margins):
    x = norm(t['embeddings.word_embeddings.weight'][ids] + t['embeddings.token_type_embeddings.weight'][0], t, 'emb_ln')
    for i in range(LAYERS):
        layer = f'encoder.layers.{i}.'
        x = norm(x + attention(x, t, layer), t, layer + 'norm1')
        inner = mixture(x, t, layer, margins) if i % EVERY == 1 else linear(F.gelu(linear(x, t, layer + 'mlp.fc1')), t, layer + 'mlp.fc2')
        x = norm(x + inner, t, layer + 'norm2')
    return x


def main():
    generator = torch.Generator().manual_seed(342)
    tensors = draw(generator)
    safetensors.torch.save_file(tensors, HERE / 'model.safetensors', metadata=dict(format='pt'))
    (HERE / 'config.json').write_text(json.dumps(CONFIG, indent=1) + '\n')
    write_modules(HERE, WIDTH, 'mean', True, [], generator)
    wide = {k: v.float() for k, v in tensors.items()}
    cases = []
    for length in LENGTHS:
        # Texts of which no token is between two experts: in 16 bits it might go to the other.
        margins = [0.0]
        while min(margins) < LEAST_MARGIN:
            ids = torch.randint(3, VOCAB, (length,), generator=generator)
            margins = []
            states = states_of(ids, wide, margins)
        mean = states.mean(0)
        cases.append(dict(name=f'len{length}', input_ids=ids.tolist(), cls=numbers(states[0]), last=numbers(states[-1]), mean=numbers(mean),
                          default=numbers(F.normalize(mean, dim=0)), hidden_std=states.std().item()))
    golden = dict(format=1, name='nomic_bert_moe', architecture='NomicBertModel', compute='float32 arithmetic on the stored weights', cases=cases)
    (HERE / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')
    print('bytes', sum(f.stat().st_size for f in HERE.rglob('*') if f.suffix in ('.json', '.safetensors')), 'states', cases[-1]['hidden_std'])


if __name__ == '__main__':
    main()
