"""Writes <name>.bin here for every block format that PyPI's gguf 0.19.0 knows.

    pip install gguf==0.19.0 numpy && python make.py

A file is, one after the other:
    mask      a block's bytes; random blocks are ANDed with it, so that scales are finite
    crc32     uint32, of the values of the SWEEP random blocks Bytes(1, ..), which the test makes itself
    blocks    RANDOM blocks of Bytes(2, ..), then what gguf's quantize gives for Gaussian values, where it has one
    values    float32, what gguf's dequantize gives for them
"""
import pathlib
import struct
import zlib

import gguf
import numpy as np

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
