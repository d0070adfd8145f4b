"""Writes <name>.bin here for every block format that PyPI's gguf 0.19.0 knows, and for the two of bitsandbytes 0.50.2.

    pip install gguf==0.19.0 bitsandbytes==0.50.2 numpy && python make.py

A file is, one after the other:
    mask      a block's bytes; random blocks are ANDed with it, so that scales are finite
    crc32     uint32, of the values of the SWEEP random blocks Bytes(1, ..), which the test makes itself
    blocks    RANDOM blocks of Bytes(2, ..), then what gguf's quantize gives for Gaussian values, where it has one
    values    float32, what gguf's (bitsandbytes') dequantize gives for them
"""
import pathlib
import struct
import zlib

import bitsandbytes.functional
import gguf
import numpy as np
import torch

SWEEP = 4096
RANDOM = 4
# Offsets of f16 fields (bit 14 is cleared: below 2), or (offset, mask).
SCALES = {
    'q4_0': [0], 'q4_1': [0, 2], 'q5_0': [0], 'q5_1': [0, 2], 'q8_0': [0],
    'q2_k': [80, 82], 'q3_k': [108], 'q4_k': [0, 2], 'q5_k': [0, 2], 'q6_k': [208],
    'iq4_nl': [0], 'iq4_xs': [0], 'iq2_xxs': [0], 'iq2_xs': [0], 'iq2_s': [0],
    'iq3_xxs': [0], 'iq3_s': [0], 'iq1_s': [0], 'iq1_m': [54],
    'mxfp4': [(0, 0xFE)],  # gguf does not know that 255 is NaN
    'nvfp4': [(i, 0x7F) for i in range(4)],  # nor that the scale has no sign
    'tq1_0': [52], 'tq2_0': [64],
}


def random_bytes(stream, count):
    """splitmix64's output for the states stream * 2^32 + i, the top byte."""
    x = np.arange(count, dtype=np.uint64) + np.uint64(stream << 32)
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(56)).astype(np.uint8)


for name, scales in SCALES.items():
    kind = gguf.GGMLQuantizationType[name.upper()]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    mask = np.full(size, 0xFF, dtype=np.uint8)
    for scale in scales:
        if isinstance(scale, tuple):
            mask[scale[0]] = scale[1]
        else:
            mask[scale + 1] = 0xBF
    with np.errstate(all='ignore'):
        sweep = random_bytes(1, SWEEP * size).reshape(SWEEP, size) & mask
        crc = zlib.crc32(gguf.dequantize(sweep, kind).astype('<f4').tobytes())
        blocks = random_bytes(2, RANDOM * size).reshape(RANDOM, size) & mask
        try:
            normal = np.random.default_rng(7).normal(size=(2, elements)).astype(np.float32)
            blocks = np.concatenate([blocks, gguf.quantize(normal, kind)])
        except NotImplementedError:
            pass
        values = gguf.dequantize(blocks, kind)
    data = mask.tobytes() + struct.pack('<I', crc) + blocks.tobytes() + values.astype('<f4').tobytes()
    (pathlib.Path(__file__).parent / f'{name}.bin').write_bytes(data)


def bitsandbytes_values(blocks, quant_type):
    """Ours: float32 scale, then codes i and 16 + i of 32 in a byte. bitsandbytes': codes 2 i (high) and 2 i + 1 in a byte."""
    nibbles = blocks[:, 4:].reshape(-1, 2, 1, 16) >> np.array([0, 4], np.uint8)[:, None] & 15
    codes = nibbles.reshape(-1, 32, 2)
    packed = torch.from_numpy(np.ascontiguousarray(codes[..., 0] << 4 | codes[..., 1]).reshape(-1, 1))
    absmax = torch.from_numpy(blocks[:, :4].copy().view('<f4').reshape(-1))
    functional = bitsandbytes.functional
    state = functional.QuantState(absmax, shape=torch.Size([len(blocks), 64]), dtype=torch.float32, blocksize=64,
                                  code=functional.get_4bit_type(quant_type, device='cpu'), quant_type=quant_type)
    return functional.dequantize_4bit(packed, state).numpy()


def bitsandbytes_blocks(values, quant_type):
    packed, state = bitsandbytes.functional.quantize_4bit(torch.from_numpy(values), blocksize=64, quant_type=quant_type)
    packed = packed.numpy().reshape(-1)
    codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1, 2, 2, 16)
    ours = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 32)
    return np.concatenate([state.absmax.numpy().astype('<f4').view(np.uint8).reshape(-1, 4), ours], 1)


for name, quant_type in (('nf4', 'nf4'), ('bnb_fp4', 'fp4')):
    mask = np.full(36, 0xFF, dtype=np.uint8)
    mask[3] = 0xBF
    sweep = random_bytes(1, SWEEP * 36).reshape(SWEEP, 36) & mask
    crc = zlib.crc32(bitsandbytes_values(sweep, quant_type).astype('<f4').tobytes())
    normal = np.random.default_rng(7).normal(size=(2, 64)).astype(np.float32)
    blocks = np.concatenate([random_bytes(2, RANDOM * 36).reshape(RANDOM, 36) & mask,
                             bitsandbytes_blocks(normal, quant_type)])
    data = mask.tobytes() + struct.pack('<I', crc) + blocks.tobytes()
    data += bitsandbytes_values(blocks, quant_type).astype('<f4').tobytes()
    (pathlib.Path(__file__).parent / f'{name}.bin').write_bytes(data)
