"""Writes the small random classifiers of sequences beside this folder (NAMES below): a pooler or head, one label or three, and the logits that
transformers computes for them in float32, of single texts and of pairs.

    pip install transformers==5.24.0 tokenizers==0.23.3 torch && python make.py

Those with one label have a tokenizer (WordPiece, byte-level BPE, Unigram, as the families' own) and texts; the others only ids.
"""
import json
import pathlib
import string

import safetensors.torch
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

MODELS = pathlib.Path(__file__).parent.parent
# name: class, labels, layers, type of the weights, what config.json says of the activation.
NAMES = {
    'bert_reranker': ('Bert', 1, 2, torch.float32, {}),
    'bert_labels': ('Bert', 3, 1, torch.bfloat16, {}),
    'roberta_reranker': ('Roberta', 1, 1, torch.bfloat16, dict(sentence_transformers=dict(activation_fn='torch.nn.modules.linear.Identity', version='5.1.0'))),
    'roberta_labels': ('Roberta', 3, 1, torch.bfloat16, {}),
    'xlm_roberta_reranker': ('XLMRoberta', 1, 1, torch.bfloat16, {}),
    'xlm_roberta_labels': ('XLMRoberta', 3, 1, torch.bfloat16, dict(sbert_ce_default_activation_function='torch.nn.modules.activation.Softmax')),
}
MODEL_TYPES = dict(Bert='bert', Roberta='roberta', XLMRoberta='xlm-roberta')
QUERY = 'where does the fox sleep'
TEXTS = ['the fox sleeps in a den', 'a lantern burns all night', 'the red fox, the old den: where?', 'z', '']
CORPUS = [QUERY] + TEXTS + ['fox den lantern night sleep where all red old'] * 3
IDS = 64    # of models without a tokenizer
LEAST = 40  # that all models have; the first 5 are special


def word_pieces():
    letters = list(string.ascii_lowercase) + ['.', ',', '?', ':']
    vocab = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] + letters + ['##' + x for x in letters[:26]] + ['the', 'fox', 'den', '##eep', 'lan', '##tern', 'where']
    made = tokenizers.Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token='[UNK]'))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(single='[CLS] $A [SEP]', pair='[CLS] $A [SEP] $B:1 [SEP]:1', special_tokens=[('[CLS]', 2), ('[SEP]', 3)])
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(vocab[:5])
    return made


def byte_pairs():
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=272, special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'],
                                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.post_processor = processors.RobertaProcessing(('</s>', 2), ('<s>', 0), trim_offsets=True, add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def unigram():
    pieces = [('<s>', 0.0), ('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0), ('\u2581', -2.0)]
    pieces += [(x, -6.0 - i / 8) for i, x in enumerate(string.ascii_lowercase + '.,?:')]
    pieces += [(x, -4.0 - i / 4) for i, x in enumerate(['\u2581the', '\u2581fox', '\u2581den', 'sleep', '\u2581lan', 'tern', '\u2581where', '\u2581a', 'ight'])] + [('<mask>', 0.0)]
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(single='<s> $A </s>', pair='<s> $A </s> </s> $B </s>', special_tokens=[('<s>', 0), ('</s>', 2)])
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(['<s>', '<pad>', '</s>', '<unk>', '<mask>'])
    return made


def written_config(family, labels, layers, dtype, vocab_size, more):
    """As published checkpoints spell it."""
    roberta = family != 'Bert'
    config = dict(architectures=[family + 'ForSequenceClassification'], model_type=MODEL_TYPES[family], torch_dtype=str(dtype).split('.')[1], vocab_size=vocab_size,
                  hidden_size=32, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=32, hidden_act='gelu', hidden_dropout_prob=0.1,
                  attention_probs_dropout_prob=0.1, max_position_embeddings=82 if roberta else 80, type_vocab_size=1 if roberta else 2, initializer_range=0.02,
                  layer_norm_eps=1e-5 if roberta else 1e-12, pad_token_id=1 if roberta else 0, position_embedding_type='absolute', classifier_dropout=None)
    if roberta:
        config.update(bos_token_id=0, eos_token_id=2)
    config.update(id2label={str(i): f'LABEL_{i}' for i in range(labels)}, label2id={f'LABEL_{i}': i for i in range(labels)}, **more)
    return config


def inputs(tokenizer, bert):
    """Name, texts or none, ids and types."""
    if tokenizer is not None:
        for i, text in enumerate(TEXTS):
            for pair in (None, text):
                first = text if pair is None else QUERY
                encoded = tokenizer.encode(first) if pair is None else tokenizer.encode(first, pair)
                yield f'{"single" if pair is None else "pair"}{i}', first, pair, encoded.ids, encoded.type_ids
    draw = torch.Generator().manual_seed(7)
    for count, first in [(1, 1), (9, 4), (30, 17), (48, 48), (48, 1)]:
        ids = torch.randint(5, LEAST, (count,), generator=draw).tolist()
        yield f'len{count}_{first}', None, None, ids, [0] * first + [1 if bert else 0] * (count - first)


def main():
    makers = dict(Bert=word_pieces, Roberta=byte_pairs, XLMRoberta=unigram)
    for seed, (name, (family, labels, layers, dtype, more)) in enumerate(NAMES.items()):
        folder = MODELS / name
        folder.mkdir(exist_ok=True)
        tokenizer = makers[family]() if labels == 1 else None
        config = written_config(family, labels, layers, dtype, IDS if tokenizer is None else tokenizer.get_vocab_size(), more)
        (folder / 'config.json').write_text(json.dumps(config, indent=1) + '\n')
        if tokenizer is not None:
            (folder / 'tokenizer.json').write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(',', ':')) + '\n')
        torch.manual_seed(seed)
        kind = getattr(transformers, family + 'ForSequenceClassification')
        model = kind(getattr(transformers, family + 'Config')(**{k: v for k, v in config.items() if k not in ('architectures', 'model_type', 'torch_dtype')}))
        for key, tensor in model.named_parameters():
            width = 1.0 if 'embeddings' in key else 0.5 if tensor.dim() == 2 else 0.2
            tensor.data = 1 + 0.2 * torch.randn_like(tensor) if 'LayerNorm.weight' in key else width * torch.randn_like(tensor)
        # Computed in float32 of what the file has.
        model = model.to(dtype).to(torch.float32).eval()
        safetensors.torch.save_file({k: v.detach().to(dtype) for k, v in model.named_parameters()}, folder / 'model.safetensors', metadata=dict(format='pt'))
        cases = []
        for case, text, pair, ids, types in inputs(tokenizer, family == 'Bert'):
            with torch.no_grad():
                more_inputs = dict(token_type_ids=torch.tensor([types])) if family == 'Bert' else {}
                logits = model(torch.tensor([ids]), **more_inputs).logits[0]
            made = dict(name=case, input_ids=ids, token_type_ids=types, logits=[float(f'{x:.8g}') for x in logits.tolist()])
            if text is not None:
                made.update(text=text) if pair is None else made.update(text=text, text_pair=pair)
            cases.append(made)
        spread = torch.tensor([c['logits'] for c in cases]).std().item()
        golden = dict(format=1, name=name, architecture=config['architectures'][0], compute='float32 arithmetic on the stored weights', logit_std=spread, cases=cases)
        (folder / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')
        print(name, 'std', spread, 'cases', len(cases))


if __name__ == '__main__':
    main()
