"""Writes the folders of the encoders below: small random models, and what transformers computes of them in float32: states, pooled as sentence-transformers
pools them, through their Dense modules where they have some, and logits of labels.

    pip install transformers==5.24.0 torch && python make_encoders.py [NAME ...]

config.json is spelled as published checkpoints spell it. Tensors have their published names and shapes.
"""
import copy
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).parent
TOKENS = dict(vocab_size=64, pad_token_id=0)
LENGTHS = (1, 6, 25, 70)  # beyond windows both ways
BERT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, hidden_act='gelu', max_position_embeddings=80, type_vocab_size=2,
            layer_norm_eps=1e-12, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, position_embedding_type='absolute')
NOMIC_FILES = dict(hidden_size=None, num_hidden_layers=None, num_attention_heads=None, intermediate_size=None, hidden_act=None, layer_norm_eps=None,
                   max_position_embeddings=None, rope_parameters=None, head_dim=None, n_embd=32, n_layer=2, n_head=2, n_inner=48, n_positions=80,
                   activation_function='swiglu', layer_norm_epsilon=1e-12, rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False,
                   rotary_scaling_factor=None, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, causal=False, prenorm=False)
DEBERTA = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, hidden_act='gelu', type_vocab_size=0, layer_norm_eps=1e-7,
               hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, relative_attention=True, pos_att_type=['p2c', 'c2p'])
T5 = dict(d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=3, relative_attention_num_buckets=32, layer_norm_epsilon=1e-6, dropout_rate=0.1,
          initializer_factor=1.0, eos_token_id=1)
T5_FILES = dict(is_encoder_decoder=True, use_cache=True, decoder_start_token_id=0, n_positions=112)
MODULE = 'sentence_transformers.models.'

# Of each: its class, its keys as its config class has them, keys that published files have instead or besides (None: they have not), how it pools, and its
# Dense modules: outputs, bias, activation.
ENCODERS = {
    # EmbeddingGemma: tokens see both ways, windows half of sliding_window each; two Dense modules without activation.
    'gemma3_embedding': ('Gemma3TextModel', dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48,
                                                 max_position_embeddings=96, rms_norm_eps=1e-6, query_pre_attn_scalar=16, sliding_window=24,
                                                 use_bidirectional_attention=True, hidden_activation='gelu_pytorch_tanh', bos_token_id=2, eos_token_id=1,
                                                 layer_types=['sliding_attention', 'sliding_attention', 'full_attention']),
                         dict(rope_parameters=None, rope_theta=1000000.0, rope_local_base_freq=10000.0, sliding_window=24, attention_bias=False),
                         'mean', True, [(48, False, 'torch.nn.modules.linear.Identity'), (24, False, 'torch.nn.modules.linear.Identity')]),
    'modernbert_labels': ('ModernBertForSequenceClassification', dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, norm_eps=1e-5,
                                                                      local_attention=16, max_position_embeddings=96, hidden_activation='gelu', norm_bias=False,
                                                                      classifier_pooling='mean', classifier_activation='gelu', num_labels=3),
                          dict(rope_parameters=None, layer_types=None, global_rope_theta=160000.0, local_rope_theta=10000.0, global_attn_every_n_layers=3,
                               position_embedding_type='absolute'),
                          'cls', True, []),
    'distilbert_labels': ('DistilBertForSequenceClassification', dict(dim=32, n_layers=2, n_heads=2, hidden_dim=48, activation='gelu', max_position_embeddings=80,
                                                                      num_labels=2), {}, 'mean', False, [(24, True, 'torch.nn.modules.activation.Tanh')]),
    'electra_labels': ('ElectraForSequenceClassification', dict(BERT, embedding_size=32, num_labels=3), {}, 'cls', False, []),
    'nomic_bert': ('NomicBertModel', dict(BERT, hidden_act='silu', position_embedding_type=None), NOMIC_FILES, 'mean', True, []),
    # GTE as it is published, with code of its own: "new"; NTK-aware scaling is what transformers' config has as a base and a factor.
    'gte_labels': ('GteForSequenceClassification', dict(BERT, position_embedding_type=None, type_vocab_size=1, num_labels=1,
                                                        rope_parameters=dict(rope_type='linear', rope_theta=20000.0 * 8, factor=8.0 ** (2 / 16))),
                   dict(architectures=['NewForSequenceClassification'], model_type='new', rope_parameters=None, rope_theta=20000.0,
                        rope_scaling=dict(type='ntk', factor=8.0), position_embedding_type='rope', layer_norm_type='layer_norm', pack_qkv=True,
                        logn_attention_scale=False, logn_attention_clip1=False, unpad_inputs=False), 'cls', True, []),
    'jina_embeddings_v3': ('JinaEmbeddingsV3Model', dict(BERT, position_embedding_type=None, type_vocab_size=1,
                                                         rope_parameters=dict(rope_type='default', rope_theta=20000.0)), {}, 'mean', True, []),
    'eurobert': ('EuroBertModel', dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, hidden_act='silu',
                                       max_position_embeddings=80, rms_norm_eps=1e-5, rope_parameters=dict(rope_type='default', rope_theta=250000.0)),
                 dict(architectures=['EuroBertForMaskedLM'], rope_parameters=None, rope_theta=250000.0, rope_scaling=None, attention_bias=False, mlp_bias=False,
                      clf_pooling='late'), 'mean', False, []),
    # ELECTRA-Small's embeddings are narrower than its network.
    'electra_narrow': ('ElectraModel', dict(BERT, embedding_size=16), {}, 'cls', False, []),
    # Positions begin at 2, and pad_token_id does not say so. Keys further than 90 have the last bucket.
    'mpnet_labels': ('MPNetForSequenceClassification', dict(BERT, position_embedding_type=None, type_vocab_size=None, max_position_embeddings=112, num_labels=2,
                                                            relative_attention_num_buckets=32), {}, 'mean', True, []),
    # Three layers of two groups: the first group has two of them. Embeddings are narrower than the network.
    'albert_labels': ('AlbertForSequenceClassification', dict(BERT, position_embedding_type=None, hidden_act='gelu_new', num_hidden_layers=3, num_hidden_groups=2,
                                                              inner_group_num=1, embedding_size=16, num_labels=3), {}, 'mean', False, []),
    # Norms before a layer's parts, and one behind all.
    'roberta_prelayernorm_labels': ('RobertaPreLayerNormForSequenceClassification', dict(BERT, position_embedding_type=None, pad_token_id=1, type_vocab_size=1,
                                                                                         max_position_embeddings=82, num_labels=2), {}, 'mean', True, []),
    'xlm_roberta_xl_labels': ('XLMRobertaXLForSequenceClassification', dict(BERT, position_embedding_type=None, pad_token_id=1, type_vocab_size=1,
                                                                            max_position_embeddings=82, layer_norm_eps=1e-5, num_labels=3), {}, 'mean', True, []),
    # Tokens have a task, the first.
    'ernie_labels': ('ErnieForSequenceClassification', dict(BERT, position_embedding_type=None, type_vocab_size=4, use_task_id=True, task_type_vocab_size=3,
                                                            num_labels=2), {}, 'cls', False, []),
    # Norms before a layer's parts and behind all, none of embeddings.
    'megatron_bert_labels': ('MegatronBertForSequenceClassification', dict(BERT, position_embedding_type=None, num_hidden_layers=1, num_labels=3), {}, 'mean', True, []),
    'data2vec_text_labels': ('Data2VecTextForSequenceClassification', dict(BERT, position_embedding_type=None, num_hidden_layers=1, pad_token_id=1, type_vocab_size=1,
                                                                           max_position_embeddings=82, layer_norm_eps=1e-5, num_labels=2), {}, 'mean', True, []),
    # sentence-t5's: heads are wider than the network, keys further than 90 have the last bucket. Files say what only the decoder has.
    't5_encoder': ('T5EncoderModel', dict(T5, feed_forward_proj='relu'), dict(T5_FILES, num_decoder_layers=2), 'mean', True, [(24, False, 'torch.nn.modules.linear.Identity')]),
    'mt5_encoder': ('MT5EncoderModel', dict(T5, num_layers=1, feed_forward_proj='gated-gelu', tie_word_embeddings=False), dict(T5_FILES, num_decoder_layers=1), 'mean', False, []),
    # A table of distances in each layer; as many buckets as no published model has, of which the last begins at 15.
    'umt5_encoder': ('UMT5EncoderModel', dict(T5, feed_forward_proj='gated-gelu', relative_attention_num_buckets=12, relative_attention_max_distance=32),
                     dict(T5_FILES, num_decoder_layers=2, n_positions=None), 'mean', False, []),
    # Embeddings are narrower than the network in both; files of RoFormer's store sines and cosines.
    'rembert_labels': ('RemBertForSequenceClassification', dict(BERT, position_embedding_type=None, num_hidden_layers=1, input_embedding_size=16,
                                                                output_embedding_size=40, num_labels=3), {}, 'mean', True, []),
    'roformer_labels': ('RoFormerForSequenceClassification', dict(BERT, position_embedding_type=None, num_hidden_layers=1, embedding_size=16, rotary_value=False,
                                                                  num_labels=2), {}, 'mean', True, []),
    # With a prefix, as files with a head have it.
    'nomic_bert_labels': ('NomicBertForSequenceClassification', dict(BERT, hidden_act='silu', position_embedding_type=None, num_hidden_layers=1, num_labels=3),
                          dict(NOMIC_FILES, n_layer=1), 'mean', True, []),
    # DeBERTa v3: 16 buckets, the last of them beyond 63; its queries and keys make those of positions. Spelled as published: a string of terms, no embedding of
    # positions.
    'deberta_v3_labels': ('DebertaV2ForSequenceClassification', dict(DEBERTA, intermediate_size=32, position_buckets=16, max_relative_positions=64, max_position_embeddings=112,
                                                                    norm_rel_ebd='layer_norm', share_att_key=True, position_biased_input=False, num_labels=3,
                                                                    pooler_hidden_size=32, pooler_hidden_act='gelu'), dict(pos_att_type='p2c|c2p'), 'mean', True, []),
    # Every distance up to 40 has a row, made by matrices of their own; absolute positions and types besides.
    'deberta_v2': ('DebertaV2Model', dict(DEBERTA, num_hidden_layers=1, max_relative_positions=40, max_position_embeddings=80, type_vocab_size=2), {}, 'mean', False, []),
    'deberta_v2_labels': ('DebertaV2ForSequenceClassification', dict(DEBERTA, pos_att_type=['c2p'], num_hidden_layers=1, max_relative_positions=-1,
                                                                    max_position_embeddings=80, num_labels=2, pooler_hidden_act='tanh'), {}, 'cls', True, []),
    # The first DeBERTa: q, k and v of a head after another in one tensor, keys without biases.
    'deberta_labels': ('DebertaForSequenceClassification', dict(DEBERTA, num_hidden_layers=1, max_relative_positions=-1, max_position_embeddings=80, position_biased_input=False, num_labels=2),
                       dict(pos_att_type='c2p|p2c'), 'mean', True, []),
}
MORE_LENGTHS = {'mpnet_labels': (110,), 't5_encoder': (110,), 'deberta_v3_labels': (110,)}


def randomise(model, generator):
    """Weights large enough that a part which is left out shows, norms and biases too; of bf16's values."""
    for name, p in model.named_parameters():
        if 'encoder.embed_positions' in name:  # RoFormer's, computed
            continue
        drawn = torch.randn(p.shape, generator=generator)
        if 'embed' in name and p.dim() == 2:
            drawn *= 0.5 if 'Gemma' in type(model).__name__ else 1.0
        elif p.dim() == 2:
            drawn *= 1.2 / p.shape[-1] ** 0.5
            if name.endswith('SelfAttention.q.weight'):  # T5's scores are not scaled
                drawn *= 0.25
        elif 'norm' in name.lower() and name.endswith('weight'):
            drawn = p.float() + 0.2 * drawn
        else:
            drawn *= 0.3
        p.data = drawn.to(torch.bfloat16).to(torch.float32)


def written_config(name, kind, keys, others, model):
    keys = {k: v for k, v in keys.items() if v is not None and k != 'num_labels'}
    config = dict(architectures=[kind], model_type=model.config.model_type, torch_dtype='bfloat16', **(TOKENS | keys))
    config.update(others)
    if 'num_labels' in ENCODERS[name][1]:
        config['id2label'] = {str(i): f'LABEL_{i}' for i in range(ENCODERS[name][1]['num_labels'])}
    removed = {k for k, v in others.items() if v is None and k not in ('rotary_scaling_factor', 'rope_scaling')}
    return {k: v for k, v in config.items() if k not in removed}


def write_modules(folder, width, pooling, normalise, dense, generator):
    """modules.json and its folders; returns the layers."""
    modules = [('', 'Transformer'), ('1_Pooling', 'Pooling')]
    (folder / '1_Pooling').mkdir(exist_ok=True)
    modes = dict(pooling_mode_cls_token=pooling == 'cls', pooling_mode_mean_tokens=pooling == 'mean', pooling_mode_max_tokens=False,
                 pooling_mode_mean_sqrt_len_tokens=False)
    (folder / '1_Pooling' / 'config.json').write_text(json.dumps(dict(word_embedding_dimension=width, **modes), indent=1) + '\n')
    layers = []
    for i, (outputs, bias, activation) in enumerate(dense, 2):
        inner = folder / f'{i}_Dense'
        inner.mkdir(exist_ok=True)
        layer = torch.nn.Linear(width, outputs, bias=bias)
        for p in layer.parameters():
            drawn = torch.randn(p.shape, generator=generator) * (1.2 / width ** 0.5 if p.dim() == 2 else 0.3)
            p.data = drawn.to(torch.bfloat16).to(torch.float32)
        (inner / 'config.json').write_text(json.dumps(dict(in_features=width, out_features=outputs, bias=bias, activation_function=activation)) + '\n')
        safetensors.torch.save_file({f'linear.{k}': p.detach().clone() for k, p in layer.named_parameters()}, inner / 'model.safetensors', metadata=dict(format='pt'))
        layers.append(torch.nn.Sequential(layer, torch.nn.Tanh() if activation.endswith('Tanh') else torch.nn.Identity()))
        modules.append((f'{i}_Dense', 'Dense'))
        width = outputs
    if normalise:
        modules.append((f'{len(modules)}_Normalize', 'Normalize'))
    listed = [dict(idx=i, name=str(i), path=path, type=MODULE + kind) for i, (path, kind) in enumerate(modules)]
    (folder / 'modules.json').write_text(json.dumps(listed, indent=1) + '\n')
    return layers


def numbers(tensor):
    return [float(f'{x:.8g}') for x in tensor.tolist()]


def compute(model, ids, types, pooling, normalise, layers):
    inputs = dict(input_ids=torch.tensor([ids]))
    if types is not None:
        inputs['token_type_ids'] = torch.tensor([types])
    with torch.no_grad():
        base = model.base_model if hasattr(model, 'classifier') else model
        states = base(**inputs).last_hidden_state[0]
        pooled = states.mean(0) if pooling == 'mean' else states[0]
        for layer in layers:
            pooled = layer(pooled)
        if normalise:
            pooled = torch.nn.functional.normalize(pooled, dim=0)
        made = dict(cls=numbers(states[0]), last=numbers(states[-1]), mean=numbers(states.mean(0)), default=numbers(pooled), hidden_std=states.std().item())
        if hasattr(model, 'classifier'):
            made['logits'] = numbers(model(**inputs).logits[0])
    return made


def main():
    for seed, (name, (kind, keys, others, pooling, normalise, dense)) in enumerate(ENCODERS.items()):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        generator = torch.Generator().manual_seed(100 + seed)
        model_class = getattr(transformers, kind)
        arguments = {k: v for k, v in keys.items() if v is not None}
        if name == 'gemma3_embedding':
            arguments['rope_parameters'] = dict(full_attention=dict(rope_type='default', rope_theta=1000000.0), sliding_attention=dict(rope_type='default', rope_theta=10000.0))
        if name.startswith('nomic_bert'):
            arguments['rope_parameters'] = dict(rope_type='default', rope_theta=1000.0)
        config = model_class.config_class(**(TOKENS | arguments))
        config._attn_implementation = 'eager'
        model = model_class(config)
        randomise(model, generator)
        model.eval()
        # Under the published names, which save_pretrained() goes back to.
        copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
        if others.get('model_type') == 'new':
            path = folder / 'model.safetensors'
            named = {k.replace('gte.', 'new.'): v for k, v in safetensors.torch.load_file(path).items()}
            safetensors.torch.save_file(named, path, metadata=dict(format='pt'))
        (folder / 'generation_config.json').unlink(missing_ok=True)
        (folder / 'config.json').write_text(json.dumps(written_config(name, kind, keys, others, model), indent=1) + '\n')
        width = config.hidden_size
        layers = write_modules(folder, width, pooling, normalise, dense, generator)
        typed = (keys.get('type_vocab_size') or 1) > 1
        cases = []
        for length in LENGTHS + MORE_LENGTHS.get(name, ()):
            ids = torch.randint(3, TOKENS['vocab_size'], (length,), generator=generator).tolist()
            plain = compute(model, ids, [0] * length if typed else None, pooling, normalise, layers)
            cases.append(dict(name=f'len{length}', input_ids=ids, **plain))
            if typed and length == LENGTHS[-1]:
                types = [0] * 30 + [1] * (length - 30)
                cases.append(dict(name=f'types{length}', input_ids=ids, token_type_ids=types, **compute(model, ids, types, pooling, normalise, layers)))
        golden = dict(format=1, name=name, architecture=kind, compute='float32 arithmetic on the stored weights', cases=cases)
        if 'logits' in cases[0]:
            golden['logit_std'] = torch.tensor([c['logits'] for c in cases]).std().item()
        (folder / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')
        print(name, 'bytes', sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()), 'states', cases[-1]['hidden_std'])


if __name__ == '__main__':
    main()
