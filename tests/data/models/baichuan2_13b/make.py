"""Writes this folder: a small random Baichuan 2 with ALiBi (13B), and what Llama's classes compute of its weights in float32, without rotation and with
ALiBi in the mask, behind a head whose rows have length 1. Names are those of the published modeling_baichuan.py.

    pip install transformers==5.24.0 torch && python make.py
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from make_alibi import slopes  # noqa: E402
from make_families import changed, clear_case, draw, tokens_of  # noqa: E402
from make_kin import baichuan  # noqa: E402

# norm_head is Inlay's key: published models are known by their 125,696 tokens.
KEYS = dict(vocab_size=112, hidden_size=48, intermediate_size=32, num_hidden_layers=1, num_attention_heads=3, hidden_act='silu', model_max_length=512,
            rms_norm_eps=1e-3, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=True, z_loss_weight=0, norm_head=True)


class Alibi(transformers.LlamaForCausalLM):
    def forward(self, input_ids, **rest):
        n = input_ids.shape[1]
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        mask = torch.tensor(slopes(self.config.num_attention_heads))[:, None, None] * distance
        mask = mask.masked_fill(distance > 0, torch.finfo(torch.float32).min)
        states = self.model(input_ids=input_ids, attention_mask=mask[None], position_ids=torch.zeros_like(input_ids), **rest)[0]
        head = torch.nn.functional.normalize(self.lm_head.weight)
        return transformers.modeling_outputs.CausalLMOutputWithPast(logits=torch.nn.functional.linear(states, head))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    config = transformers.LlamaConfig(**{k: v for k, v in KEYS.items() if k not in ('model_max_length', 'z_loss_weight', 'norm_head')}, max_position_embeddings=512)
    model = Alibi(config)
    for part, tensor in model.named_parameters():
        tensor.data = draw(part, tensor.data, 1)
    # Rows of lengths that differ, in float32: what is divided by them is rounded to the type of the head.
    model.lm_head.weight.data = (torch.rand(112, 1) + 0.5) * torch.randn(112, 48)
    tensors = {n: t if 'lm_head' in n else t.to(torch.bfloat16) for n, t in model.state_dict().items()}
    model.load_state_dict({n: t.float() for n, t in tensors.items()})
    model.config._attn_implementation = 'eager'
    model.eval()
    tensors = baichuan(tensors, KEYS)
    safetensors.torch.save_file({n: t.contiguous() for n, t in tensors.items()}, HERE / 'model.safetensors', metadata=dict(format='pt'))
    keys = dict(architectures=['BaichuanForCausalLM'], model_type='baichuan', **KEYS)
    (HERE / 'config.json').write_text(json.dumps(dict(keys, torch_dtype='bfloat16'), indent=1) + '\n')
    newer = dict(keys, max_position_embeddings=512, dtype='bfloat16', rope_parameters=dict(rope_type='default', rope_theta=10000.0))
    (HERE / 'config_v5.json').write_text(json.dumps(newer, indent=1) + '\n')
    cases = [clear_case(model, changed(model), n) for n in (1, 130)]
    golden = dict(format=1, name='baichuan2_13b', architecture='BaichuanForCausalLM', model_type='baichuan', weights_dtype='bfloat16', vocab_size=tokens_of(config),
                  cases=cases)
    (HERE / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
