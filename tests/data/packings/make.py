"""Writes the files here: one layer a case, packed by the library that defines the layout, and the weights that it was given.

    pip install auto-round==0.16.1 autoawq==0.2.9 amd-quark==0.13 torchao==0.18.0 transformers==5.24.0 torch && python make.py

`python make.py torchao` makes those of TorchAO anew and leaves the others as they are.

settings.json: each case's quantization_config. model.safetensors: CASE.l.* as packed; CASE.dense (f16), what they stand for, exactly: scales are
powers of two. What the library can unpack is unpacked and compared.
"""
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
GROUP = 32


def draw(bits, least_zero, seed, n=32, k=32):
    """Scales and zero points [n, groups], weights [n, k]."""
    torch.manual_seed(seed)
    most = 2 ** bits - 1
    codes = torch.randint(0, most + 1, (n, k))
    scales = 2.0 ** torch.randint(-9, -4, (n, k // GROUP)).float()
    zeros = torch.randint(least_zero, most + 1, (n, k // GROUP)).float()
    per_column = [t.repeat_interleave(GROUP, 1) for t in (scales, zeros)]
    return scales, zeros, (codes - per_column[1]) * per_column[0]


def linear(dense):
    layer = torch.nn.Linear(dense.shape[1], dense.shape[0], bias=False)
    layer.weight.data = dense.clone()
    return layer


def auto_round_gptq(bits, less_one, seed, k=32):
    from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp
    scales, zeros, dense = draw(bits, 1 if less_one else 0, seed, k=k)
    packed = (qlinear_torch_zp if less_one else qlinear_torch).QuantLinear(bits, GROUP, k, 32, False)
    packed.device = 'cpu'
    packed.pack(linear(dense), scales, zeros, None, device='cpu')
    assert torch.equal(packed(torch.eye(k)).T, dense), bits
    settings = {'quant_method': 'auto-round', 'bits': bits, 'group_size': GROUP, 'sym': False, 'data_type': 'int',
                'packing_format': 'auto_round:auto_gptq' if less_one else 'auto_round'}
    return settings, packed.state_dict(), dense


def auto_round_awq(seed):
    from auto_round.export.export_to_awq.utils import WQLinear_GEMM
    scales, zeros, dense = draw(4, 0, seed, n=8, k=64)
    packed = WQLinear_GEMM.from_linear(linear(dense), 4, GROUP, scales=scales.T.contiguous(), zeros=zeros.T.contiguous(), device='cpu')
    settings = {'quant_method': 'auto-round', 'bits': 4, 'group_size': GROUP, 'sym': False, 'packing_format': 'auto_round:auto_awq'}
    return settings, packed.state_dict(), dense


def levels_of(shape):
    """Random e2m1 with a 6 in every 16 of a row."""
    levels = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])[torch.randint(0, 8, shape)] * (1 - 2 * torch.randint(0, 2, shape))
    levels[:, ::16] = 6
    return levels


def e4m3_of(shape):
    """Random e4m3 with 448 first in every row."""
    codes = torch.randint(0, 127, shape, dtype=torch.uint8)
    codes[:, 0] = 126
    return (codes + 128 * torch.randint(0, 2, shape, dtype=torch.uint8)).view(torch.float8_e4m3fn).float()


def auto_round_mx(data_type, bits, group, seed):
    from auto_round.export.export_to_autoround.qlinear_fp import QuantLinear
    torch.manual_seed(seed)
    shape, options = (8, 64), {}
    exponents = torch.randint(-6, -2, (8, 64 // group)).float()
    dense = (levels_of(shape) if bits == 4 else e4m3_of(shape)) * (2.0 ** exponents).repeat_interleave(group, 1)
    packed = QuantLinear(bits, group, 64, 8, False, data_type=data_type, act_bits=bits)
    if data_type == 'nv_fp':  # its scales times the factor
        options, exponents = dict(global_scale=torch.tensor([16.0])), 16 * 2.0 ** exponents
    packed.pack(linear(dense), exponents, device='cpu', **options)
    settings = {'quant_method': 'auto-round', 'bits': bits, 'group_size': group, 'sym': True, 'data_type': data_type, 'act_bits': bits,
                'act_data_type': data_type, 'packing_format': 'auto_round:llm_compressor'}
    return settings, {name: tensor for name, tensor in packed.state_dict().items() if name != 'input_global_scale'}, dense


def auto_round_fp8(seed):
    from auto_round.export.export_to_autoround.export_to_fp8 import pack_layer
    torch.manual_seed(seed)
    scales = 2.0 ** torch.randint(-6, -2, (8, 1)).float()
    dense = e4m3_of((8, 64)) * scales
    model = torch.nn.Module()
    model.dtype, model.l = torch.bfloat16, linear(dense)
    model.l.scale, model.l.zp, model.l.group_size, model.l.bits, model.l.act_bits = scales, None, -1, 8, 8
    pack_layer('l', model, 'fp', 'cpu')
    settings = {'quant_method': 'auto-round', 'bits': 8, 'group_size': -1, 'data_type': 'fp', 'act_bits': 8, 'fmt': 'e4m3',
                'activation_scheme': 'static', 'packing_format': 'auto_round:fp8_static'}
    return settings, model.l.state_dict(), dense


def awq_gemv(seed):
    from awq.modules.linear.gemv import WQLinear_GEMV
    scales, zeros, dense = draw(4, 0, seed, n=8, k=64)
    packed = WQLinear_GEMV.from_linear(linear(dense), 4, GROUP, scales=scales, zeros=zeros)
    settings = {'quant_method': 'awq', 'bits': 4, 'group_size': GROUP, 'version': 'gemv', 'zero_point': True}
    return settings, packed.state_dict(), dense


def full(least, most, shape, groups):
    """Integers [n, k] of which every one of the groups of a row has both ends."""
    codes = torch.randint(least, most + 1, shape).reshape(shape[0], groups, -1)
    codes[:, :, 0], codes[:, :, 1] = least, most
    return codes.reshape(shape).float()


def to_the_end(codes, most):
    """The largest half a step further, where Quark's symmetric scales have the end of the range; it is cut off there."""
    return torch.where(codes == most, most + .5, codes)


def quark(spec, dense, given=None):
    """k_proj of a small Llama whose weights are `given`, such as Quark writes it; `dense`: what it stands for."""
    import transformers
    from quark.torch import ModelQuantizer, export_safetensors
    from quark.torch.quantization.config.config import QConfig, QLayerConfig
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=8))
    layer = 'model.layers.0.self_attn.k_proj'
    model.get_submodule(layer).weight.data = (dense if given is None else given).clone()
    quantizer = ModelQuantizer(QConfig(global_quant_config=QLayerConfig(weight=spec.to_quantization_spec()), exclude=['lm_head']))
    model = quantizer.freeze(quantizer.quantize_model(model.float().eval(), [torch.arange(8)[None]]))
    with tempfile.TemporaryDirectory() as folder:
        export_safetensors(model, folder)
        tensors = load_file(pathlib.Path(folder) / 'model.safetensors')
        settings = json.loads((pathlib.Path(folder) / 'config.json').read_text())['quantization_config']
    return settings, {name[len(layer) + 1:]: tensor for name, tensor in tensors.items() if name.startswith(layer + '.')}, dense


def quark_cases():
    from quark.torch.quantization.config import config
    torch.manual_seed(3)
    shape = (8, 64)
    by_row, by_group = 2.0 ** torch.randint(-6, -2, (8, 1)).float(), 2.0 ** torch.randint(-6, -2, (8, 2)).float().repeat_interleave(32, 1)
    e4m3 = e4m3_of(shape)
    options = dict(is_dynamic=False)
    rounded = dict(options, scale_type='float', round_method='half_even')
    yield 'quark_fp8', quark(config.FP8E4M3PerTensorSpec(observer_method='min_max', **options), e4m3 / 16)
    yield 'quark_fp8_channel', quark(config.FP8E4M3PerChannelSpec(ch_axis=0, **options), e4m3 * by_row)
    codes = full(-127, 127, shape, 1)
    yield 'quark_int8', quark(config.Int8PerChannelSpec(symmetric=True, ch_axis=0, **rounded), codes * by_row, to_the_end(codes, 127) * by_row)
    yield 'quark_mxfp4', quark(config.OCP_MXFP4Spec(ch_axis=-1, **options), levels_of(shape) * by_group)
    yield 'quark_uint4', quark(config.Uint4PerGroupSpec(symmetric=False, ch_axis=1, group_size=32, **rounded), full(-5, 10, shape, 2) * by_group)
    codes = full(-7, 7, shape, 2)
    settings, packed, dense = quark(config.Int4PerGroupSpec(symmetric=True, ch_axis=1, group_size=32, **rounded), codes * by_group,
                                    to_the_end(codes, 7) * by_group)
    yield 'quark_int4', (settings, packed, dense)
    # What its AwqConfig and AWQ_SAVE_MAP make of that.
    names = {'weight': 'qweight', 'weight_scale': 'scales', 'weight_zero_point': 'qzeros'}
    settings = {'quant_method': 'awq', 'zero_point': False, 'group_size': 32, 'bits': 4, 'version': 'gemm', 'pack_method': 'reorder'}
    yield 'quark_awq', (settings, {names[name]: tensor for name, tensor in packed.items()}, dense)


def torchao(config, tensor, dense=None):
    from torchao.core.config import config_to_dict
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    packed, _ = flatten_tensor_state_dict({'l.weight': tensor})
    settings = {'quant_method': 'torchao', 'quant_type': {'default': config_to_dict(config)}}
    return settings, {name[2:]: values for name, values in packed.items()}, tensor.dequantize().float() if dense is None else dense


def torchao_cases():
    from torchao import quantization as ao
    from torchao.quantization.granularity import PerGroup
    torch.manual_seed(4)
    shape, dtype = (8, 64), torch.float32
    scales = lambda rows, groups: 2.0 ** torch.randint(-6, -2, (rows, groups)).float()
    codes = lambda least, most: torch.randint(least, most + 1, shape, dtype=torch.int8)
    yield 'torchao_int8', torchao(ao.Int8WeightOnlyConfig(), ao.Int8Tensor(codes(-128, 127), scales(8, 1), [1, 64], dtype, codes(-9, 9)[:, :1].clone()))
    yield 'torchao_int8_groups', torchao(ao.Int8DynamicActivationInt8WeightConfig(), ao.Int8Tensor(codes(-128, 127), scales(8, 2), [1, 32], dtype))
    zeros = codes(-8, 7)[:, :2].clone()
    bits = lambda name, least, most: ao.IntxUnpackedToInt8Tensor(codes(least, most), scales(8, 2), zeros, getattr(torch, name), [1, 32], dtype, None)
    of_groups = lambda name: ao.IntxWeightOnlyConfig(weight_dtype=getattr(torch, name), granularity=PerGroup(32))
    yield 'torchao_intx_4', torchao(of_groups('int4'), bits('int4', -8, 7))
    yield 'torchao_intx_6', torchao(of_groups('int6'), bits('int6', -32, 31))
    e4m3 = e4m3_of(shape).to(torch.float8_e4m3fn)
    yield 'torchao_fp8', torchao(ao.Float8WeightOnlyConfig(), ao.Float8Tensor(e4m3, scales(8, 1), [1, 64], dtype=dtype))
    yield 'torchao_fp8_blocks', torchao(ao.Float8WeightOnlyConfig(), ao.Float8Tensor(e4m3, scales(2, 2), [4, 32], dtype=dtype))
    # It has no way back from these (its kernels' library does): value = scale * code + zero, the even column's code in the low bits.
    values, by_group, zero = codes(-8, 7), scales(2, 8), torch.randint(-8, 8, (2, 8)) / 64
    packed = ao.Int4Tensor(values[:, ::2] & 15 | values[:, 1::2] << 4, by_group.bfloat16(), zero.bfloat16(), [1, 32], shape)
    turned = [tensor.T.repeat_interleave(32, 1) for tensor in (by_group, zero)]
    yield 'torchao_int4', torchao(ao.Int4WeightOnlyConfig(group_size=32), packed, values * turned[0] + turned[1])


def without_nulls(settings):
    if not isinstance(settings, dict):
        return settings
    return {key: without_nulls(value) for key, value in settings.items() if value is not None and value != {}}


def all_cases():
    cases = {f'gptq_{bits}': auto_round_gptq(bits, True, bits, 64 if bits == 3 else 32) for bits in (2, 3, 5, 8)}
    cases |= {f'gptq_{bits}_v2': auto_round_gptq(bits, False, 10 + bits) for bits in (3, 4)}
    cases |= {'awq': auto_round_awq(20), 'awq_gemv': awq_gemv(21)}
    cases |= {'mxfp4': auto_round_mx('mx_fp', 4, 32, 22), 'mxfp8': auto_round_mx('mx_fp', 8, 32, 23),
              'nvfp4': auto_round_mx('nv_fp', 4, 16, 24), 'fp8': auto_round_fp8(25)}
    return cases | dict(quark_cases()) | dict(torchao_cases())


def main():
    tensors, settings, cases = {}, {}, all_cases() if len(sys.argv) < 2 else dict(torchao_cases())
    if len(sys.argv) > 1:
        others = lambda items: {name: value for name, value in items.items() if not name.startswith('torchao')}
        tensors, settings = others(load_file(HERE / 'model.safetensors')), others(json.loads((HERE / 'settings.json').read_text()))
    for name, (own, packed, dense) in cases.items():
        assert torch.equal(dense.half().float(), dense), name
        tensors |= {f'{name}.l.{key}': tensor.clone().contiguous() for key, tensor in packed.items()}
        tensors[f'{name}.dense'] = dense.half()
        settings[name] = without_nulls(own)
    save_file(tensors, HERE / 'model.safetensors')
    lines = [f'"{name}": {json.dumps(own)}' for name, own in settings.items()]
    (HERE / 'settings.json').write_text('{\n' + ',\n'.join(lines) + '\n}\n')


if __name__ == '__main__':
    main()
