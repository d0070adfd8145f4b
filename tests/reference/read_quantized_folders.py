#!/usr/bin/env python3
"""Folders that `inlay quantize` writes, read by the engines that people read such folders with: transformers with compressed-tensors, with
bitsandbytes, with GPTQModel (GPTQ and AWQ), and AutoAWQ's unpacking.

The small model that ships is written in each type and opened twice: as the engine runs it, and with the weights that the engine makes of the
folder in a model of float32 that rounds nothing else. Beside them are Inlay's logits of the same folder in float32 (`--kernels gemm=cpu_simd`,
which leaves activations as they are). A row for each: the largest difference over the logits' standard deviation and how many of the greedy tokens are the same.

    float32    1e-4 and more is a bug of somebody's: scales, zero points, codes or their order are read otherwise
    as it runs what the engine rounds besides: activations (W8A8), weights or products to 16 bits
    by hand    of W8A8, what runs beside the model of float32 with its inputs rounded as the folder says: 0

Not a test: none of these is a dependency of Inlay's. From the repository's root, with a work folder that may go afterwards:

    pip install torch transformers==5.24.0 compressed-tensors bitsandbytes accelerate optimum gptqmodel && pip install --no-deps autoawq
    python3 tests/reference/read_quantized_folders.py /tmp/folders            # or some types: u4_g128 'w8a8_*'
"""
import argparse
import datetime
import fnmatch
import importlib.metadata
import importlib.util
import json
import logging
import os
import pathlib
import subprocess
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
logging.disable(logging.WARNING)

MODEL = "examples/models/pocket-7m"
PROMPT = "Once upon a time, a small fox found a lantern in the snow. She carried it to the old mill and said"
# What it says does not matter: that layers get scales and an order of their own does.
CALIBRATION = "\n".join(f"{name} {verb} the {thing} to the {place}, and then {name} said that {n} plus {n + 3} is {2 * n + 3}." for n, (name, verb, thing, place) in enumerate(
    (a, b, c, d) for a in ("Mia", "Tom", "The fox") for b in ("took", "brought") for c in ("lantern", "apple", "little red boat") for d in ("river", "mill", "garden wall")))

GPTQ = ["u4_g128", "u4_g64", "u4_g32", "u4_channel", "i8_g128", "i8_g64", "i8_g32", "i8_channel"]
FOLDERS = {name + end: ["--type", name + end] for name in GPTQ for end in ("", "_sym")}
FOLDERS |= {
    "u4_g128 gptq": ["--type", "u4_g128", "--method", "gptq"],
    "u4_g128 gptq act-order": ["--type", "u4_g128", "--method", "gptq", "--act-order"],
    "u4_g128_sym gptq act-order": ["--type", "u4_g128_sym", "--method", "gptq", "--act-order"],
    "u4_g128, down_proj bf16": ["--type", "u4_g128", "--tensor", "*down_proj*=bf16"],
    "awq_g128": ["--type", "awq_g128"], "awq_g64": ["--type", "awq_g64"], "awq_g32": ["--type", "awq_g32"],
    "awq_g128 awq": ["--type", "awq_g128", "--method", "awq"],
    "awq_g128, down_proj bf16": ["--type", "awq_g128", "--tensor", "*down_proj*=bf16"],
    "w8a8_int8": ["--type", "w8a8_int8"],
    "w8a8_int8 smoothquant": ["--type", "w8a8_int8", "--method", "smoothquant"],
    "w8a8_fp8": ["--type", "w8a8_fp8"],
    "w8a8_fp8_tensor": ["--type", "w8a8_fp8_tensor"],
    "w8a8_fp8_static": ["--type", "w8a8_fp8_static", "--method", "rtn"],
    "w8a8_int8, down_proj w8a8_fp8": ["--type", "w8a8_int8", "--tensor", "*down_proj*=w8a8_fp8"],
    "w8a8_fp8_block": ["--type", "w8a8_fp8_block"],
}
FOLDERS |= {name + end: ["--type", name + end] for name in ("w4a16_g128", "w4a16_g64", "w4a16_g32", "w4a16_channel") for end in ("", "_asym")}
FOLDERS |= {
    "w4a16_g128 gptq": ["--type", "w4a16_g128", "--method", "gptq"],
    "w4a16_g128_asym gptq act-order": ["--type", "w4a16_g128_asym", "--method", "gptq", "--act-order"],
    "w4a16_g128 awq": ["--type", "w4a16_g128", "--method", "awq"],
    "w4a16_g128, down_proj w8a8_fp8_block": ["--type", "w4a16_g128", "--tensor", "*down_proj*=w8a8_fp8_block"],
    "nf4": ["--type", "nf4"], "fp4": ["--type", "fp4"],
    "nf4, down_proj bf16": ["--type", "nf4", "--tensor", "*down_proj*=bf16"],
}
NEED_TEXT = ("--method", "w8a8_fp8_static")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip())
    return done.stdout


def write(inlay, name, work):
    folder = work / name.replace(" ", "-").replace(",", "").replace("*", "")
    arguments = list(FOLDERS[name])
    if any(word in arguments for word in NEED_TEXT):
        text = work / "calibration.txt"
        text.write_text(CALIBRATION)
        arguments += ["--calibration", str(text)]
    if not (folder / "config.json").exists():
        run([inlay, "quantize", MODEL, str(folder), "--threads", "1", "--quiet", *arguments])
    return folder


def inlay_logits(inlay, folder, ids, greedy):
    said = json.loads(run([inlay, "logits", str(folder), "--ids", ",".join(map(str, ids)), "--positions", "all", "--greedy", str(greedy), "--backend", "cpu",
                           "--threads", "1", "--kernels", "gemm=cpu_simd"]))
    return torch.tensor(said["logits"]), said["greedy"]


def logits(model, ids, greedy):
    with torch.no_grad():
        made = list(ids)
        for _ in range(greedy):
            made.append(model(torch.tensor([made]), use_cache=False).logits[0, -1].argmax().item())
        return model(torch.tensor([ids]), use_cache=False).logits[0].float(), made[len(ids):]


def opened(folder):
    """As the engine opens it; what it would draw is an error."""
    model, said = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", device_map="cpu", output_loading_info=True)
    wrong = [key for key in [*said["missing_keys"], *said["unexpected_keys"], *said["mismatched_keys"]] if "lm_head" not in str(key)]
    if wrong:
        raise ValueError(f"not as it is called there: {wrong[:3]}")
    return model.eval()


def dense(folder, weights):
    """A model of float32 with `weights` by layers' names; the others as the folder has them."""
    config = transformers.AutoConfig.from_pretrained(folder)
    del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    state = {name: tensor.float() for name, tensor in safetensors_of(folder).items() if name in model.state_dict() and name.removesuffix(".weight") not in weights}
    state |= {name + ".weight": tensor.float() for name, tensor in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if "lm_head" not in name]:
        raise ValueError(f"no weights: {missing[:3]} {unexpected[:3]}")
    model.tie_weights()
    return model.eval()


def safetensors_of(folder):
    import safetensors.torch  # pylint: disable=import-outside-toplevel
    return safetensors.torch.load_file(folder / "model.safetensors")


def gptqmodel_weights(model, _):
    """By its own unpacking, scales in float32."""
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm  # pylint: disable=import-outside-toplevel
    weights = {}
    for name, module in model.named_modules():
        if not hasattr(module, "qweight"):
            continue
        if hasattr(module, "dequantize_weight"):
            stored = module.scales
            module.scales = stored.float()
            weights[name] = module.dequantize_weight().T
            module.scales = stored
        else:
            weights[name] = dequantize_gemm(module.qweight, module.qzeros, module.scales.float(), module.bits, module.group_size).T
    return weights


def autoawq_weights(_, folder):
    """Without the package's own start, which wants another transformers."""
    root = pathlib.Path(str(importlib.metadata.distribution("autoawq").locate_file("awq")))
    spec = importlib.util.spec_from_file_location("packing_utils", root / "utils" / "packing_utils.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stored, group = safetensors_of(folder), json.loads((folder / "config.json").read_text())["quantization_config"]["group_size"]
    return {name.removesuffix(".qweight"): module.dequantize_gemm(stored[name], stored[name.replace("qweight", "qzeros")], stored[name.replace("qweight", "scales")].float(), 4, group).T
            for name in stored if name.endswith(".qweight")}


def compressed_tensors_weights(model, _):
    """By its own functions, scales in float32 (its decompression gives scales' type, and rounds to it)."""
    # pylint: disable=import-outside-toplevel
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    def codes(module):
        if not hasattr(module, "weight_packed"):
            return module.weight
        return unpack_from_int32(module.weight_packed, module.quantization_scheme.weights.num_bits, torch.Size(module.weight_shape.tolist()))
    return {name: dequantize(codes(module), module.weight_scale.float(), args=module.quantization_scheme.weights, dtype=torch.float32)
            for name, module in model.named_modules() if getattr(module, "quantization_scheme", None) is not None}


def unpacked_weights(_, folder):
    """By its decompression alone: transformers makes room for zero points that are not packed, which no folder has, its own neither."""
    # pylint: disable=import-outside-toplevel
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationScheme
    settings = json.loads((folder / "config.json").read_text())["quantization_config"]
    scheme = QuantizationScheme(**settings["config_groups"]["group_0"])
    stored, weights = safetensors_of(folder), {}
    for name in stored:
        layer, part = name.rsplit(".", 1)
        if part == "weight_packed":
            parts = {part: stored[f"{layer}.{part}"] for part in PackedQuantizationCompressor.compression_param_names(scheme)}
            parts["weight_scale"] = parts["weight_scale"].float()
            weights[layer] = PackedQuantizationCompressor.decompress(parts, scheme)["weight"]
    return weights


def bitsandbytes_weights(model, _):
    """By its own function, into float32."""
    import bitsandbytes  # pylint: disable=import-outside-toplevel
    weights = {}
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            state = module.weight.quant_state
            state.dtype, stored = torch.float32, state.dtype
            weights[name] = bitsandbytes.functional.dequantize_4bit(module.weight.data, state)
            state.dtype = stored
    return weights


def round_inputs(model, folder, read):
    """What W8A8 does to inputs, by hand: with it the model of float32 is what the engine runs, or the engine rounds otherwise."""
    stored = safetensors_of(folder)

    def rounded(name, scheme):
        def hook(_, inputs):
            x = inputs[0]
            if scheme.type == "int":
                scale = torch.maximum(x.amax(-1, keepdim=True), -x.amin(-1, keepdim=True)) / 127.5
                return (torch.clamp(torch.round(x / scale), -128, 127) * scale,)
            groups = x.unflatten(-1, (-1, scheme.group_size)) if scheme.group_size else x
            scale = groups.abs().amax(-1, keepdim=True) / 448 if scheme.dynamic else stored[name + ".input_scale"]
            return (((groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale).reshape(x.shape),)
        return hook
    modules = dict(model.named_modules())
    for name, module in read.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is not None and scheme.input_activations is not None:
            modules[name].register_forward_pre_hook(rounded(name, scheme.input_activations))
    return model


READERS = {
    "gptq": [("GPTQModel", opened, gptqmodel_weights)],
    "awq": [("GPTQModel", opened, gptqmodel_weights), ("AutoAWQ's unpacking", None, autoawq_weights)],
    "compressed-tensors": [("compressed-tensors", opened, compressed_tensors_weights)],
    "bitsandbytes": [("bitsandbytes", opened, bitsandbytes_weights)],
}


def readers_of(settings):
    groups = settings.get("config_groups", {}).values()
    if any(not group["weights"]["symmetric"] for group in groups):
        return [("compressed-tensors' unpacking", None, unpacked_weights)]
    return READERS[settings["quant_method"]]


PACKAGES = ["torch", "transformers", "compressed-tensors", "bitsandbytes", "gptqmodel", "optimum", "autoawq"]


def compared(got, want):
    (logits_a, greedy_a), (logits_b, greedy_b) = got, want
    same = next((i for i, (a, b) in enumerate(zip(greedy_a, greedy_b)) if a != b), len(greedy_b))
    return f"{(logits_a - logits_b).abs().max().item() / logits_b.std().item():.1e}, {same} of {len(greedy_b)}"


def columns(folder, method, opener, weights, ids, greedy, want):
    """What a row says, up to the first error."""
    said = []
    try:
        model = opener(folder) if opener else None
        exact = dense(folder, weights(model, folder))  # first: some engines unpack theirs when they run
        said.append(compared(logits(exact, ids, greedy), want))
        if model is not None:
            runs = logits(model, ids, greedy)
            said.append(compared(runs, want))
            if method == "compressed-tensors":
                said.append(compared(runs, logits(round_inputs(exact, folder, model), ids, greedy)))
    except Exception as error:  # pylint: disable=broad-except  # whatever it says
        said.append(f"{type(error).__name__}: {str(error)[:120]!r}")
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("folders", nargs="*", default=["*"])
    parser.add_argument("--inlay", default="build/bin/inlay")
    parser.add_argument("--greedy", type=int, default=32, help="tokens")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    print(f"{datetime.date.today()}; {', '.join(versions)}\n")
    print("| folder | read by | in float32 | as it runs | inputs rounded by hand |\n|---|---|---|---|---|")
    ids = transformers.AutoTokenizer.from_pretrained(MODEL)(PROMPT)["input_ids"]
    for name in FOLDERS:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in args.folders):
            continue
        folder = write(args.inlay, name, args.work)
        want = inlay_logits(args.inlay, folder, ids, args.greedy)
        settings = json.loads((folder / "config.json").read_text())["quantization_config"]
        for engine, opener, weights in readers_of(settings):
            said = columns(folder, settings["quant_method"], opener, weights, ids, args.greedy, want)
            print(f"| {name} | {engine} | {' | '.join((said + ['-'] * 3)[:3])} |", flush=True)


if __name__ == "__main__":
    main()
