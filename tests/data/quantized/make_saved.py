"""Writes bnb_* and torchao_* here: a small random Llama (and GPT-2, whose layers are Conv1D), quantised and saved by transformers with bitsandbytes or
TorchAO on a CPU.

    pip install bitsandbytes==0.50.2 torchao==0.18.0 transformers==5.24.0 accelerate torch && python make_saved.py [NAME..]

golden.json: what the same model gives in float32 with weights that the library itself turns into float32 (TorchAO's, whose scales have the model's type,
codes times scales in float32). Those of bitsandbytes were made with transformers 5.23.0.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).parent
STEPS = 20
CONFIG = dict(vocab_size=256, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              head_dim=32, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True)
MODELS = {
    'bnb_nf4': dict(load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype='bfloat16'),
    'bnb_fp4': dict(load_in_4bit=True, bnb_4bit_quant_type='fp4'),
    'bnb_int8': dict(load_in_8bit=True),
    'bnb_nf4_gpt2': dict(load_in_4bit=True, bnb_4bit_quant_type='nf4'),
    'torchao_fp8': dict(kind='Float8WeightOnlyConfig'),
    'torchao_int4': dict(kind='IntxWeightOnlyConfig', weight_dtype=torch.int4, group=32),
    'torchao_int8': dict(kind='Int8WeightOnlyConfig'),
}
SMALL = dict(vocab_size=128, intermediate_size=128, num_hidden_layers=1)  # TorchAO's
GPT2 = dict(vocab_size=256, n_embd=128, n_inner=192, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2)


def make(name, **options):
    if name.endswith('gpt2'):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **options))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG | (SMALL if name.startswith('torchao') else {}), **options))


def layers_of(model):
    return model.transformer.h if hasattr(model, 'transformer') else model.model.layers


def draw(kind, folder, seed):
    torch.manual_seed(seed)
    model = make(kind)
    for name, tensor in model.named_parameters():
        if ('norm' in name or 'ln_' in name) and name.endswith('weight'):
            tensor.data = 1 + 0.2 * torch.randn_like(tensor)
        else:
            tensor.data = (0.2 if 'embed' in name or 'wte' in name else 0.1) * torch.randn_like(tensor)
    model.to(torch.bfloat16).save_pretrained(folder)


def settings_of(name):
    if name.startswith('bnb'):
        return transformers.BitsAndBytesConfig(**MODELS[name])
    import torchao.quantization as ao
    options = dict(MODELS[name])
    kind, group = getattr(ao, options.pop('kind')), options.pop('group', None)
    if group:
        options['granularity'] = ao.PerGroup(group)
    return transformers.TorchAoConfig(quant_type=kind(**options))


def float32_weight(module):
    """The weights that a quantised layer stands for, or None."""
    if hasattr(getattr(module, 'weight', None), 'qdata'):
        return torchao_weight(module.weight)
    if not type(module).__module__.startswith('bitsandbytes'):
        return None
    import bitsandbytes
    if isinstance(module, bitsandbytes.nn.Linear4bit):
        state = module.weight.quant_state
        state.dtype = torch.float32
        return bitsandbytes.functional.dequantize_4bit(module.weight.data, state)
    scales = module.weight.SCB if module.weight.SCB is not None else module.state.SCB
    return bitsandbytes.functional.int8_vectorwise_dequant(module.weight.data, scales).float()


def torchao_weight(weight):
    codes, scale = weight.qdata.float(), weight.scale.float()
    zero = getattr(weight, 'zero_point', None)
    scale, zero = [None if t is None else t.float().reshape(len(codes), -1) for t in (scale, zero)]
    columns = codes.shape[1] // scale.shape[1]
    codes = codes if zero is None else codes - zero.repeat_interleave(columns, 1)
    return codes * scale.repeat_interleave(columns, 1)


def reference(kind, quantised):
    """A float32 model with the weights that `quantised` stands for."""
    model = make(kind, attn_implementation='eager').eval()
    modules = dict(quantised.named_modules())
    count = 0
    for name, module in model.named_modules():
        other = modules.get(name)
        weight = None if other is None else float32_weight(other)
        if weight is not None:
            turned = isinstance(module, transformers.pytorch_utils.Conv1D)
            module.weight.data = weight.T.contiguous() if turned else weight.reshape(module.weight.shape)
            count += 1
        elif getattr(module, 'weight', None) is not None:
            module.weight.data = other.weight.data.float()
        if getattr(module, 'bias', None) is not None:
            module.bias.data = other.bias.data.float()
    # The head shares the embedding's weights.
    assert count == (4 if kind.endswith('gpt2') else 7) * len(layers_of(model)), count
    return model


def rounded(tensor):
    return [float('%.7g' % value) for value in tensor.tolist()]


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)


def changed(model):
    """The same weights but for a relative 3e-7."""
    import copy
    other = copy.deepcopy(model)
    for tensor in other.parameters():
        tensor.data = tensor * (1 + 3e-7 * torch.randn_like(tensor))
    return other


@torch.no_grad()
def cases_of(model, seed):
    vocab_size = model.config.vocab_size
    generator = torch.Generator().manual_seed(seed)
    near = changed(model)
    cases = []
    for length in (1, 7, 33, 130):
        while True:
            ids = torch.randint(3, vocab_size, (length,), generator=generator).tolist()
            residual = []
            hooks = [layer.register_forward_hook(lambda _, __, out: residual.append((out[0] if isinstance(out, tuple) else out)[0, -1]))
                     for layer in layers_of(model)]
            logits = logits_of(model, ids).logits[0]
            for hook in hooks:
                hook.remove()
            deviation = logits[-1].std().item()
            sensitivity = ((logits_of(near, ids).logits[0] - logits).abs().max() / deviation).item()
            positions = sorted({(length - 1) // 3, 2 * (length - 1) // 3, length - 1})
            tokens, top, margins, prompt = [], [], [], list(ids)
            for _ in range(STEPS):
                last = logits_of(model, prompt).logits[0, -1]
                best = last.topk(2)
                tokens.append(int(best.indices[0]))
                top.append(best.values[0])
                margins.append(best.values[0] - best.values[1])
                prompt.append(tokens[-1])
            if sensitivity < 5e-5 and min(margins) > 2e-3 * deviation:
                break
        cases.append({'name': f'len{length}', 'input_ids': ids, 'positions': positions, 'logits': [rounded(logits[p]) for p in positions],
                      'logit_std': float('%.7g' % deviation), 'layer_outputs_last_position': [rounded(row) for row in residual],
                      'greedy': {'tokens': tokens, 'top1_logits': rounded(torch.stack(top)), 'margins': rounded(torch.stack(margins))},
                      'sensitivity': float('%.3g' % sensitivity)})
    return cases


for index, (name, settings) in enumerate(MODELS.items()):
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as source:
        draw(name, source, 10 + index)
        quantised = transformers.AutoModelForCausalLM.from_pretrained(
            source, quantization_config=settings_of(name), device_map='cpu', dtype=torch.bfloat16)
        library = __import__('bitsandbytes' if name.startswith('bnb') else 'torchao')
        golden = {'format': 1, 'name': name, 'architecture': quantised.config.architectures[0], 'model_type': quantised.config.model_type, 'vocab_size': quantised.config.vocab_size,
                  'note': f'{library.__name__} {library.__version__}, {settings}',
                  'compute': f'float32 arithmetic on the weights {library.__name__} gives',
                  'cases': cases_of(reference(name, quantised), 20 + index)}
        quantised.save_pretrained(out)
    for extra in ('generation_config.json',):
        if (out / extra).exists():
            os.remove(out / extra)
    (out / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')))
    print(name, sum(file.stat().st_size for file in out.iterdir()), [case['sensitivity'] for case in golden['cases']])
