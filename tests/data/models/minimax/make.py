"""Writes this folder: a small random MiniMax-Text-01 (lightning attention, attention, experts) and what transformers computes of it in float32.

    pip install transformers==5.23.0 torch && python make.py

config.json is spelled as published checkpoints spell it; config_v5.json as transformers 5 writes it.
"""
import copy
import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
STEPS = 20
CONFIG = dict(vocab_size=320, hidden_size=64, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              max_position_embeddings=512, rms_norm_eps=1e-3, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False, block_size=16,
              bos_token_id=1, eos_token_id=2, layer_types=['linear_attention', 'linear_attention', 'full_attention', 'linear_attention'],
              full_attn_alpha_factor=2.5, full_attn_beta_factor=0.9, linear_attn_alpha_factor=3.5, linear_attn_beta_factor=1.25,
              mlp_alpha_factor=1.75, mlp_beta_factor=1.5)
THETA = 10000.0


def numbers(tensor):
    return [float(f'{x:.7g}') for x in tensor.tolist()]


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


def clear_case(model, near, count):
    """A prompt after which no greedy step is near a tie."""
    for seed in range(100):
        ids = torch.randint(3, CONFIG['vocab_size'], (count,), generator=torch.Generator().manual_seed(seed)).tolist()
        found = case(model, near, f'len{count}', ids)
        if min(found['greedy']['margins']) > 4e-3 * found['logit_std'] and found['sensitivity'] < 5e-5:
            return found
    raise SystemExit('no prompt')


def main():
    torch.manual_seed(11)
    config = transformers.MiniMaxConfig(**CONFIG, rope_parameters=dict(rope_type='default', rope_theta=THETA))
    model = transformers.MiniMaxForCausalLM(config)
    for name, tensor in model.named_parameters():
        tensor.data = 1 + 0.2 * torch.randn_like(tensor) if 'norm' in name else (1.0 if 'embed' in name else 0.2) * torch.randn_like(tensor)
    model = model.to(torch.bfloat16)
    model.save_pretrained(HERE)
    (HERE / 'generation_config.json').unlink(missing_ok=True)
    saved = json.loads((HERE / 'config.json').read_text())
    (HERE / 'config_v5.json').write_text(json.dumps(saved, indent=1) + '\n')
    published = {k: v for k, v in saved.items() if k not in ('rope_parameters', 'dtype')}
    published.update(rope_theta=THETA, torch_dtype='bfloat16', transformers_version='4.57.1')
    (HERE / 'config.json').write_text(json.dumps(published, indent=1) + '\n')
    reference = transformers.MiniMaxForCausalLM.from_pretrained(HERE, dtype=torch.float32, attn_implementation='eager').eval()
    # The file has them in bfloat16.
    for layer in reference.model.layers:
        part = layer.self_attn
        if hasattr(part, 'slope_rate'):
            part.slope_rate = part.get_slope_rate()
            part.query_decay, part.key_decay, part.diagonal_decay = part.decay_factors(part.slope_rate)
    near = changed(reference)
    cases = [clear_case(reference, near, n) for n in (1, 7, 33, 130)]
    golden = dict(format=1, name='minimax', architecture='MiniMaxForCausalLM', model_type='minimax', weights_dtype='bfloat16', vocab_size=CONFIG['vocab_size'], cases=cases)
    (HERE / 'golden.json').write_text(json.dumps(golden) + '\n')


if __name__ == '__main__':
    main()
