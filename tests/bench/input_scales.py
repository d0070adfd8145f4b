"""How far inputs in e4m3 take a model from bf16: with one scale a tensor, of the largest input of some texts, and with each token's own.

    pip install torch transformers && python input_scales.py [MODEL [TEXTS.jsonl]]

Arithmetic in float32; the last third of the texts calibrates, the others are measured. "moved": of what the layers read; "logits": of their
deviation over the vocabulary; KL in nats.
"""
import json
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).parents[2]
MODEL = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / 'examples/models/pocket-7m')
TEXTS = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / 'tests/data/pocket-eval/stories.jsonl')


def e4m3(x, scale):
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


class Inputs:
    """What every linear layer but the head reads, rounded as `how` says."""

    def __init__(self, layers):
        self.how, self.largest, self.error, self.power = 'kept', {}, 0.0, 0.0
        for name, layer in layers.items():
            self.largest[name] = 0.0
            layer.register_forward_pre_hook(lambda _, inputs, name=name: (self.round(name, inputs[0]),))

    def round(self, name, x):
        if self.how == 'calibrated':
            self.largest[name] = max(self.largest[name], x.abs().max().item())
        if self.how not in ('static', 'token'):
            return x
        scale = self.largest[name] / 448 if self.how == 'static' else x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
        rounded = e4m3(x, scale)
        self.error += (rounded - x).square().sum().item()
        self.power += x.square().sum().item()
        return rounded

    @torch.no_grad()
    def run(self, model, texts, how):
        self.how, self.error, self.power = how, 0.0, 0.0
        return [model(ids).logits.double() for ids in texts]


def report(label, got, want, inputs):
    divergence = error = power = tokens = 0
    for a, b in zip(got, want):
        p, q = b.log_softmax(-1), a.log_softmax(-1)
        divergence += (p.exp() * (p - q)).sum().item()
        tokens += b.shape[1]
        a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
        error += (a - b).square().sum().item()
        power += b.square().sum().item()
    moved = (inputs.error / inputs.power) ** 0.5 if inputs.power else 0
    print(f'{label:38} moved {100 * moved:5.2f} %  logits {100 * (error / power) ** 0.5:5.2f} %  KL {divergence / tokens:.2e}  ({tokens} tokens)')


def main():
    model = transformers.LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    texts = [tokenizer(json.loads(line)['text'], return_tensors='pt').input_ids for line in open(TEXTS)]
    calibration, texts = texts[-(len(texts) // 3):], texts[:-(len(texts) // 3)]
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and name != 'lm_head'}
    stored = {name: layer.weight.data for name, layer in layers.items()}
    inputs = Inputs(layers)
    inputs.run(model, calibration, 'calibrated')
    plain = inputs.run(model, texts, 'kept')
    for weights in ('bf16', 'e4m3 by tensor', 'e4m3 by channel'):
        for name, layer in layers.items():
            largest = stored[name].abs().amax(1, keepdim=True) if weights.endswith('channel') else stored[name].abs().max()
            layer.weight.data = stored[name] if weights == 'bf16' else e4m3(stored[name], largest / 448)
        for how in ('kept', 'static', 'token'):
            report(f'weights {weights}, inputs {how}', inputs.run(model, texts, how), plain, inputs)


if __name__ == '__main__':
    main()
