"""Writes this folder: a small random Step 3.5, and what transformers computes of it in float32. transformers has the network as the text of Step 3.7, whose
files have the same names of tensors and keys; config.json here has those of the published Step-3.5-Flash.

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
from make_families import changed, clear_case, draw, text_alone, tokens_of  # noqa: E402

LLAMA3 = dict(rope_type='llama3', factor=2.0, low_freq_factor=1.0, high_freq_factor=32.0, original_max_position_embeddings=256)
# Of two layers, and of one that predicts a further token, which published files have behind them and this one does not.
PUBLISHED = dict(
    architectures=['Step3p5ForCausalLM'], model_type='step3p5', rope_scaling=LLAMA3, yarn_only_types=['full_attention'], hidden_size=32, intermediate_size=32,
    num_hidden_layers=2, max_seq_len=512, vocab_size=112, torch_dtype='bfloat16', use_qk_norm=True, moe_layers_enum='1', num_attention_heads=2,
    num_attention_groups=1, head_dim=16, use_moe=True, moe_num_experts=3, moe_top_k=2, moe_intermediate_size=16, share_expert_dim=16, moe_layer_offset=0,
    moe_every_n_layer=1, norm_expert_weight=True, moe_router_activation='sigmoid', moe_router_scaling_factor=3.0, att_impl_type='GQA',
    rope_theta=[5000000.0, 10000.0, 10000.0], use_head_wise_attn_gate=True, sliding_window=32, use_moe_router_bias=True, need_fp32_gate=True, sink=False,
    layer_types=['full_attention', 'sliding_attention', 'sliding_attention'], use_rope_layers=[], num_nextn_predict_layers=1,
    partial_rotary_factors=[0.5, 1.0, 1.0],
    attention_other_setting=dict(attention_type='sliding_attention', num_attention_heads=3, num_attention_groups=1, head_dim=16, true_head_dim=16),
    swiglu_limits=[0.0, 0.3, 0.0], swiglu_limits_shared=[0.5, 0.4, 0.0], zero_centered=True, max_position_embeddings=512, bos_token_id=1, eos_token_id=[2],
    pad_token_id=0, rms_norm_eps=1e-3, tie_word_embeddings=False)
VISION = dict(width=32, layers=1, heads=2, image_size=28)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    keys = {k: v for k, v in PUBLISHED.items() if k not in ('architectures', 'model_type', 'torch_dtype')}
    config = transformers.Step3p7Config(text_config=keys, vision_config=VISION)
    model = transformers.Step3p7ForConditionalGeneration(config)
    for tensors in (model.named_parameters(), model.named_buffers()):
        for part, tensor in tensors:
            if tensor.is_floating_point() and 'inv_freq' not in part:
                tensor.data = draw(part, tensor.data, 0)
    model.to(torch.bfloat16).save_pretrained(HERE)
    (HERE / 'generation_config.json').unlink(missing_ok=True)
    reference = type(model).from_pretrained(HERE, dtype=torch.float32, attn_implementation='eager').eval()
    text_alone(HERE / 'model.safetensors')
    tensors = safetensors.torch.load_file(HERE / 'model.safetensors')
    safetensors.torch.save_file({n: t for n, t in tensors.items() if not n.startswith('vit_')}, HERE / 'model.safetensors', metadata=dict(format='pt'))
    saved = json.loads((HERE / 'config.json').read_text())['text_config']
    (HERE / 'config_v5.json').write_text(json.dumps(dict(saved, architectures=PUBLISHED['architectures'], model_type='step3p5'), indent=1) + '\n')
    (HERE / 'config.json').write_text(json.dumps(PUBLISHED, indent=1) + '\n')
    cases = [clear_case(reference, changed(reference), n) for n in (1, 33, 130)]
    golden = dict(format=1, name='step3p5', architecture='Step3p5ForCausalLM', model_type='step3p5', weights_dtype='bfloat16', vocab_size=tokens_of(config),
                  cases=cases)
    (HERE / 'golden.json').write_text(json.dumps(golden, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
