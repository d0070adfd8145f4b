"""Writes this folder and jina_bert_code beside it: small random models of the kinds of jina-embeddings-v2-base-en and of -base-code, and what the arithmetic
that is public of them gives in float32. transformers 5.24 has no such layers: written from the paper (arXiv:2310.19923) and from what the published
modeling_bert.py of jina-bert-implementation and of jina-bert-v2-qk-post-norm do: scores fall by a slope of each head times the distance, both ways; MLPs have a
gate, whose half of one matrix comes first, or in the code model last; there q and k have norms and a layer's input is added twice.

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
from make_alibi import slopes  # noqa: E402
from make_encoders import LENGTHS, numbers, write_modules  # noqa: E402

WIDTH, HEADS, LAYERS, INNER, VOCAB, EPSILON = 48, 3, 2, 16, 64, 1e-12
# As published, but for sizes.
CONFIG = dict(
    architectures=['JinaBertForMaskedLM'], attention_probs_dropout_prob=0.0, attn_implementation='torch', classifier_dropout=None, emb_pooler='mean',
    feed_forward_type='geglu', gradient_checkpointing=False, hidden_act='gelu', hidden_dropout_prob=0.1, hidden_size=WIDTH, initializer_range=0.02,
    intermediate_size=INNER, layer_norm_eps=EPSILON, max_position_embeddings=80, model_max_length=80, model_type='bert', num_attention_heads=HEADS,
    num_hidden_layers=LAYERS, pad_token_id=0, position_embedding_type='alibi', torch_dtype='bfloat16', type_vocab_size=2, use_cache=True, vocab_size=VOCAB)


def shapes(code):
    yield 'embeddings.word_embeddings.weight', (VOCAB, WIDTH)
    yield 'embeddings.token_type_embeddings.weight', (2, WIDTH)
    norms = ['embeddings.LayerNorm']
    for i in range(LAYERS):
        layer = f'encoder.layer.{i}.'
        for name in ('attention.self.query', 'attention.self.key', 'attention.self.value', 'attention.output.dense'):
            yield f'{layer}{name}.weight', (WIDTH, WIDTH)
            yield f'{layer}{name}.bias', (WIDTH,)
        yield layer + ('mlp.up_gated_layer.weight' if code else 'mlp.gated_layers.weight'), (2 * INNER, WIDTH)
        down = layer + ('mlp.down_layer' if code else 'mlp.wo')
        yield down + '.weight', (WIDTH, INNER)
        yield down + '.bias', (WIDTH,)
        norms += [layer + n for n in ['attention.output.LayerNorm'] + (
            ['attention.self.layer_norm_q', 'attention.self.layer_norm_k', 'layer_norm_1', 'layer_norm_2'] if code else ['mlp.layernorm'])]
    for norm in norms:
        yield from ((f'{norm}.{x}', (WIDTH,)) for x in ('weight', 'bias'))


def draw(code, generator):
    tensors = {}
    for name, shape in shapes(code):
        x = torch.randn(shape, generator=generator)
        if 'embeddings' in name and len(shape) == 2:
            x *= 1.0 if 'word' in name else 0.3
        elif len(shape) == 2:
            x *= 1.2 / shape[1] ** 0.5
        elif name.endswith('weight'):
            x = 1 + 0.2 * x
        else:
            x *= 0.2
        tensors[name] = x.to(torch.bfloat16)
    return tensors


def norm(x, t, name):
    return F.layer_norm(x, (WIDTH,), t[name + '.weight'], t[name + '.bias'], EPSILON)


def linear(x, t, name):
    return x @ t[name + '.weight'].T + t[name + '.bias']


def attention(x, t, layer, code):
    count, size = x.shape[0], WIDTH // HEADS
    q, k, v = (linear(x, t, f'{layer}attention.self.{part}') for part in ('query', 'key', 'value'))
    if code:
        q, k = norm(q, t, layer + 'attention.self.layer_norm_q'), norm(k, t, layer + 'attention.self.layer_norm_k')
    q, k, v = (part.reshape(count, HEADS, size).transpose(0, 1) for part in (q, k, v))
    distance = (torch.arange(count)[:, None] - torch.arange(count)[None, :]).abs()
    scores = q @ k.transpose(1, 2) / size ** 0.5 - torch.tensor(slopes(HEADS))[:, None, None] * distance
    return linear((torch.softmax(scores, dim=-1) @ v).transpose(0, 1).reshape(count, WIDTH), t, layer + 'attention.output.dense')


def states_of(ids, types, t, code):
    x = norm(t['embeddings.word_embeddings.weight'][ids] + t['embeddings.token_type_embeddings.weight'][types], t, 'embeddings.LayerNorm')
    for i in range(LAYERS):
        layer = f'encoder.layer.{i}.'
        y = norm(x + attention(x, t, layer, code), t, layer + 'attention.output.LayerNorm')
        x = norm(x + y, t, layer + 'layer_norm_1') if code else y
        first, last = (x @ t[layer + ('mlp.up_gated_layer.weight' if code else 'mlp.gated_layers.weight')].T).chunk(2, dim=1)
        inner = first * F.gelu(last) if code else F.gelu(first) * last
        x = norm(x + linear(inner, t, layer + ('mlp.down_layer' if code else 'mlp.wo')), t, layer + ('layer_norm_2' if code else 'mlp.layernorm'))
    return x


def write(folder, code):
    generator = torch.Generator().manual_seed(342 + code)
    tensors = draw(code, generator)
    safetensors.torch.save_file(tensors, folder / 'model.safetensors', metadata=dict(format='pt'))
    (folder / 'config.json').write_text(json.dumps(CONFIG, indent=1) + '\n')
    write_modules(folder, WIDTH, 'mean', True, [], generator)
    wide = {k: v.float() for k, v in tensors.items()}
    cases = []
    for length in LENGTHS:
        ids = torch.randint(3, VOCAB, (length,), generator=generator)
        for types in [torch.zeros_like(ids)] + ([(torch.arange(length) >= 30).long()] if length == LENGTHS[-1] else []):
            states = states_of(ids, types, wide, code)
            mean = states.mean(0)
            given = dict(token_type_ids=types.tolist()) if types.any() else {}
            cases.append(dict(name=('types' if given else 'len') + str(length), input_ids=ids.tolist(), **given, cls=numbers(states[0]), last=numbers(states[-1]),
                              mean=numbers(mean), default=numbers(F.normalize(mean, dim=0)), hidden_std=states.std().item()))
    golden = dict(format=1, name=folder.name, architecture='JinaBertForMaskedLM', compute='float32 arithmetic on the stored weights', cases=cases)
    (folder / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')
    print(folder.name, 'bytes', sum(f.stat().st_size for f in folder.rglob('*') if f.suffix in ('.json', '.safetensors')), 'states', cases[-1]['hidden_std'])


if __name__ == '__main__':
    for folder, code in ((HERE, False), (HERE.parent / 'jina_bert_code', True)):
        folder.mkdir(exist_ok=True)
        write(folder, code)
