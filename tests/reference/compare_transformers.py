#!/usr/bin/env python3
"""Logits beside transformers' of tiny random models whose config.json varies: what a key means, what is assumed where it is absent.

For each family of a list (variations_dense.py, variations_mixed.py, variations_recurrent.py, variations_experts.py; variations_encoders.py, whose embeddings
are compared): each variation as it is, each key of the saved config.json removed,
null and, where it is true or false, turned, the rope keys as files of before transformers 5 spell them, and variations combined at
random. Both read the same file. A line for each case that is not equal:

    DIFFERS   other logits (more than 1e-4 of their standard deviation, and than four times what transformers' own rounding does): to be looked
              into, though transformers may be what is wrong
    refused   an error of Inlay's where transformers runs
    skip      transformers has none; what Inlay says stands beside it

Not a test: transformers is no dependency of Inlay's. From the repository's root:

    pip install transformers==5.24.0 torch && python3 tests/reference/compare_transformers.py dense            # or mixed, recurrent, experts, encoders
    python3 tests/reference/compare_transformers.py dense llama qwen3 --random 100 --seed 7
"""
import argparse
import contextlib
import copy
import importlib
import io
import json
import logging
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
logging.disable(logging.WARNING)

REMOVED = "(removed)"
IDS = [(7 * i * i + 3 * i + 1) % 89 + 3 for i in range(40)]
BASE = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# Neither changes logits, or a change of them changes nothing but them.
LEFT_ALONE = {"architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache",
              "initializer_range", "attention_dropout", "output_router_logits", "router_aux_loss_coef", "vocab_size",
              "rescale_prenorm_residual"}  # Of it transformers 5.24 scales weights that it has read.
# Files of before transformers 5: rope_theta and rope_scaling, whose type has two names.
OLD_ROPES = [
    None, {"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}, {"type": "dynamic", "factor": 2.0}, {"type": "default"},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, {"rope_type": "yarn", "factor": 4.0},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 0.7, "mscale_all_dim": 0.3},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "original_max_position_embeddings": 32, "beta_fast": 8, "beta_slow": 2, "truncate": False},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}]


def randomise(model):
    """Weights large enough that a part which is left out shows, norms and biases too."""
    generator = torch.Generator().manual_seed(1)
    biases = [(name, b) for name, b in model.named_buffers() if "correction_bias" in name or "expert_bias" in name or "layer_scalar" in name]
    for name, p in [*model.named_parameters(), *biases]:
        if not p.is_floating_point() or "encoder.embed_positions" in name:  # RoFormer's are computed
            continue
        drawn = torch.randn(p.shape, generator=generator)
        if p.dim() >= 2:
            drawn *= 1.2 / p.shape[-1] ** 0.5
            if "modality_router" in name:  # what it gives is divided by the width
                drawn *= p.shape[-1]
        elif "norm" in name.lower() or "A_log" in name or "dt_bias" in name:
            drawn = p.float() + 0.3 * drawn
        elif name.rsplit(".", 1)[-1] in ("sqk", "s_gate", "lambda_1", "lambda_2", "suv_gate", "suv_up", "logit_scale"):  # Dory's
            drawn = p.float() * (1 + 0.3 * drawn)
        elif "scalar" in name:
            drawn = 1 + 0.2 * drawn
        else:
            drawn *= 0.3
        with torch.no_grad():
            p.copy_(drawn.to(p.dtype))
    # DeepSeek-V4's experts of tokens: those of a row differ.
    for name, table in model.state_dict().items():
        if name.endswith("tid2eid"):
            rows, columns = torch.meshgrid(*[torch.arange(n) for n in table.shape], indexing="ij")
            table.copy_((3 * rows + columns) % model.config.n_routed_experts)


def make(model_type, config, folder, model_class="AutoModelForCausalLM", outer=None):
    if outer is not None:  # there is no class of the text alone
        model_class, (outer_type, towers) = "AutoModelForImageTextToText", outer
        config = {"text_config": config | {"model_type": model_type}} | towers
        model_type = outer_type
    config = transformers.AutoConfig.for_model(model_type, **copy.deepcopy(config))
    torch.manual_seed(0)
    model = getattr(transformers, model_class).from_config(config, attn_implementation="eager", dtype=torch.float32)
    randomise(model)
    model.eval().save_pretrained(folder)


def words(folder, size=512):
    """A tokenizer that takes "t5" for id 5."""
    model = {"type": "WordLevel", "vocab": {f"t{i}": i for i in range(size)}, "unk_token": "t0"}
    (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                                                                     "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": model}))


def wanted_states(folder, ids, model_class, dtype=torch.float32):
    """The first, the last and the mean of the states."""
    model, loaded = getattr(transformers, model_class).from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    drawn = [k for k in loaded["missing_keys"] if "lm_head" not in k and "pooler" not in k] + list(loaded["mismatched_keys"])
    if drawn:
        raise ValueError(f"no weights: {drawn[:2]}")
    model = model.eval()
    with torch.no_grad():
        states = (model if model_class == "AutoModel" else model.base_model)(torch.tensor([ids])).last_hidden_state[0]
    return torch.stack([states[0], states[-1], states.mean(0)])


def wanted(folder, ids, dtype=torch.float32):
    # Of Falcon's the one that adds ALiBi once: eager attention has it in the mask besides.
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    attention = "sdpa" if config["model_type"] == "falcon" else "eager"
    model_class = transformers.AutoModelForImageTextToText if "text_config" in config else transformers.AutoModelForCausalLM
    model, loaded = model_class.from_pretrained(folder, dtype=dtype, attn_implementation=attention, output_loading_info=True,
                                                                       **({} if dtype == torch.float32 else {"experts_implementation": "eager"}))
    # Those that it would draw.
    drawn = [k for k in loaded["missing_keys"] if "lm_head" not in k or not model.config.tie_word_embeddings] + list(loaded["mismatched_keys"])
    if drawn:
        raise ValueError(f"no weights: {drawn[:2]}")
    with torch.no_grad():
        return model.eval()(torch.tensor([ids]), use_cache=False).logits[0].to(dtype)


def rename(model_type, folder):
    """What transformers writes otherwise than published files have it."""
    classes = {"exaone": "ExaoneForCausalLM", "internlm3": "InternLM3ForCausalLM", "iquestcoder": "IQuestCoderForCausalLM", "sarvam_moe": "SarvamMoEForCausalLM",
               "sarvam_mla": "SarvamMLAForCausalLM"}
    if model_type in classes:
        path = pathlib.Path(folder) / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps(dict(config, architectures=[classes[model_type]])))
    if model_type not in ("deepseek_v4", "kimi_linear"):
        return
    path = pathlib.Path(folder) / "model.safetensors"
    names = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        if model_type == "kimi_linear":
            for part in ("gate", "up", "down"):
                name = name.replace(f"block_sparse_moe.{part}_proj", f"mlp.{part}_proj")
        else:
            name = name.removeprefix("model.").replace("hc_head.hc_", "hc_head_").replace("embed_tokens", "embed").replace("attn.norm.", "attn.kv_norm.")
        names[name] = tensor
    safetensors.torch.save_file(names, path)


class Comparison:
    def __init__(self, inlay, model_type, model_class=None, outer=None):
        """`model_class`: embeddings are compared, of this class. `outer`: the type that the text is a part of, and its other keys."""
        self.outer = outer
        self.inlay = inlay
        self.model_type = model_type
        self.model_class = model_class
        self.counts = {}

    def wanted(self, folder, ids, dtype=torch.float32):
        return wanted(folder, ids, dtype) if self.model_class is None else wanted_states(folder, ids, self.model_class, dtype)

    def make(self, config, folder):
        make(self.model_type, config, folder, self.model_class or "AutoModelForCausalLM", self.outer)

    def embeddings(self, folder, ids):
        words(folder)
        vectors = []
        for pooling in ("cls", "last", "mean"):
            done = subprocess.run([self.inlay, "embed", folder, "--text", " ".join(f"t{i}" for i in ids), "--pooling", pooling, "--backend", "cpu", "--threads", "1",
                                   "--kernels", "gemm=cpu_simd"], capture_output=True, text=True, check=False)
            if done.returncode < 0:
                return None, f"CRASHED: signal {-done.returncode}"
            if done.returncode != 0:
                return None, (done.stderr or done.stdout).strip()
            vectors.append(torch.tensor(json.loads(done.stdout)))
        return torch.stack(vectors), "loads"

    def logits(self, folder, ids):
        if self.model_class is not None:
            return self.embeddings(folder, ids)
        done = subprocess.run([self.inlay, "logits", folder, "--ids", ",".join(map(str, ids)), "--positions", "all", "--backend", "cpu", "--threads", "1",
                               "--kernels", "gemm=cpu_simd"], capture_output=True, text=True, check=False)
        if done.returncode < 0:
            return None, f"CRASHED: signal {-done.returncode}"
        if done.returncode != 0:
            return None, (done.stderr or done.stdout).strip()
        return torch.tensor(json.loads(done.stdout)["logits"]), "loads"

    def verdict(self, folder, edits, ids):
        path = pathlib.Path(folder) / "config.json"
        whole = json.loads(path.read_text())
        config = (whole if self.outer is None else whole["text_config"]) | edits
        config = {key: value for key, value in config.items() if value != REMOVED}
        path.write_text(json.dumps(config if self.outer is None else whole | {"text_config": config}, indent=1))
        want = None
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                want = self.wanted(folder, ids)
        except Exception as thrown:  # pylint: disable=broad-except  # whatever it says
            error = thrown
        rename(self.model_type, folder)
        got, said = self.logits(folder, ids)
        if want is None:
            return "skip", f"{type(error).__name__}: {str(error)[:100]!r}; Inlay: {said[:160]}"
        if got is None:
            return "refused", said
        error = ((got - want[:, :got.shape[1]]).abs().max() / want.std()).item()
        if 1e-4 <= error < 1e-2 and self.is_rounding(folder, got, want, ids):
            return "equal", ""
        return ("equal" if error < 1e-4 else "DIFFERS"), f"{error:.2g}"

    def is_rounding(self, folder, got, want, ids):
        """Whether float64 is about as near to Inlay's logits as to transformers' own: some networks multiply what rounding does."""
        try:
            exact = self.wanted(folder, ids, torch.float64)
        except Exception:  # pylint: disable=broad-except
            return False
        own = (want.double() - exact).abs().max()
        return bool((got.double() - exact[:, :got.shape[1]]).abs().max() < 4 * own)

    def run(self, what, source, edits=None, ids=None):
        """`source`: a folder to copy, or a configuration to make a model of."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                if isinstance(source, dict):
                    self.make(source, folder)
                else:
                    shutil.copytree(source, folder, dirs_exist_ok=True)
                verdict, detail = self.verdict(folder, edits or {}, ids or IDS)
            except Exception as error:  # pylint: disable=broad-except
                verdict, detail = "skip", f"cannot be made: {type(error).__name__}: {str(error)[:100]!r}"
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        if verdict != "equal":
            print(f"{verdict:9} {self.model_type:18} {what} {detail}", flush=True)

    def keys(self, config, old_ropes):
        with tempfile.TemporaryDirectory() as folder:
            self.make(config, folder)
            saved = json.loads((pathlib.Path(folder) / "config.json").read_text())
            saved = saved if self.outer is None else saved["text_config"]
            for key, value in saved.items():
                if key in LEFT_ALONE:
                    continue
                for other in [REMOVED, None] + ([not value] if isinstance(value, bool) else []):
                    self.run({key: other}, folder, {key: other})
            if isinstance(saved.get("rope_parameters"), dict):
                self.run("both ropes", folder, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}})
                self.run("both ropes, one empty", folder, {"rope_scaling": {}})
            if old_ropes is None:
                return
            for scaling in OLD_ROPES:
                self.run({"rope_scaling": scaling}, folder, {"rope_parameters": REMOVED, "rope_theta": 1000.0, "rope_scaling": scaling, **old_ropes})

    def combined(self, base, cases, count, rng):
        for _ in range(count):
            config = dict(base)
            for case in rng.sample(cases, min(3, len(cases))):
                config |= case
            config |= {"vocab_size": rng.choice([96, 97, 128]), "intermediate_size": rng.choice([64, 40, 72])}
            ids = IDS[:rng.choice([1, 2, 17, 33, 40])]
            self.run({k: v for k, v in config.items() if base.get(k) != v}, config, ids=ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", choices=["dense", "mixed", "recurrent", "experts", "encoders"])
    parser.add_argument("families", nargs="*")
    parser.add_argument("--inlay", default="build/bin/inlay")
    parser.add_argument("--random", type=int, default=10, help="combinations a family")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    families = importlib.import_module(f"variations_{args.list}").FAMILIES
    for model_type, family in families.items():
        if args.families and model_type not in args.families:
            continue
        is_encoder = args.list == "encoders"
        comparison = Comparison(args.inlay, model_type, family.get("class", "AutoModelForCausalLM") if is_encoder else None, family.get("outer"))
        base = {k: v for k, v in (BASE | family.get("base", {})).items() if v != REMOVED}
        for case in [{}, *family["cases"]]:
            comparison.run(case, base | case)
        for case, edits in family.get("edits", []):
            comparison.run(case | edits, base | case, edits)
        comparison.keys(base, family.get("old_ropes"))
        comparison.combined(base, family["cases"], args.random, rng)
        print(f"== {model_type}: {comparison.counts}", flush=True)


if __name__ == "__main__":
    main()
