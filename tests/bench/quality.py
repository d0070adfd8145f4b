#!/usr/bin/env python3
"""How good quantised weights are: every format and method on one model, as rows of a Markdown table.

Texts that the model writes itself at temperature 1 are what it is measured and, with other seeds, calibrated on. Of each
row: file size, perplexity, KL divergence from the stored weights' distributions (nats), how often the likeliest token is
the same, and exact match by task. Needs the command, nothing else. Run from the repository's root:

    python3 tests/bench/quality.py --work /tmp/quality
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

# What texts begin with; the model writes the message and the reply to it.
STARTS = ["<|user|>Tell a story about", "<|user|>", "<|system|>You are", "<|user|>Echo:", "Once upon a time,"]

FOLDERS = ("u4_", "i8_", "awq_", "w8a8_")

# Type and method. Embeddings have the type too in GGUF; in folders they stay as they are.
ROWS = [
    ("q8_0", "rtn"), ("q6_k", "rtn"), ("q6_k", "gptq"), ("q5_k", "rtn"), ("q5_k", "gptq"), ("q5_1", "rtn"), ("q5_0", "rtn"),
    ("q4_k", "rtn"), ("q4_k", "imatrix"), ("q4_k", "gptq"), ("q4_1", "rtn"), ("q4_0", "rtn"), ("q4_0", "imatrix"), ("q4_0", "awq"),
    ("q4_0", "gptq"), ("iq4_nl", "rtn"), ("iq4_nl", "gptq"), ("iq4_xs", "rtn"), ("iq4_xs", "gptq"), ("mxfp4", "rtn"), ("nvfp4", "rtn"),
    ("q3_k", "rtn"), ("q3_k", "gptq"), ("iq3_s", "rtn"), ("iq3_xxs", "rtn"), ("q2_k", "rtn"), ("q2_k", "gptq"), ("iq2_s", "rtn"),
    ("iq2_xs", "rtn"), ("iq2_xxs", "rtn"), ("iq1_m", "rtn"), ("iq1_s", "rtn"),
    ("w8a8_int8", "rtn"), ("w8a8_int8", "smoothquant"), ("w8a8_fp8", "rtn"), ("w8a8_fp8", "smoothquant"), ("w8a8_fp8_tensor", "rtn"),
    ("w8a8_fp8_static", "rtn"), ("i8_g128", "rtn"), ("i8_channel", "rtn"),
    ("u4_g32", "rtn"), ("u4_g32", "gptq"), ("u4_g64", "rtn"), ("u4_g64", "gptq"), ("u4_g128", "rtn"), ("u4_g128", "imatrix"),
    ("u4_g128", "gptq"), ("awq_g128", "awq"), ("u4_g128_sym", "rtn"), ("u4_g128_sym", "gptq"), ("u4_channel", "rtn"), ("u4_channel", "gptq"),
]


class Bench:
    def __init__(self, args):
        self.args = args
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)

    def inlay(self, *words):
        command = [self.args.inlay, *map(str, words), "--quiet", "--threads", str(self.args.threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def write(self, prompt, seed):
        """What the model goes on with after `prompt`."""
        lines = self.inlay("generate", self.args.model, "--prompt", prompt, "--temperature", 1, "--top-k", 0, "--top-p", 1, "--min-p", 0,
                           "--seed", seed, "--max-tokens", 200, "--json").splitlines()
        events = [json.loads(line) for line in lines]
        return "".join(event["text"] for event in events if event.get("event") == "tokens")

    def texts(self, name, count, first_seed):
        """A file of `count` texts; made once."""
        path = self.work / name
        if path.exists():
            return path
        with open(path.with_suffix(".new"), "w", encoding="utf-8") as out:
            for i in range(count):
                start = STARTS[i % len(STARTS)]
                text = start + self.write(start, first_seed + i)
                if start.startswith("<|system|>"):
                    text += "<|end|><|user|>"
                    text += self.write(text, first_seed + i)
                if start.startswith("<|"):
                    text += "<|end|><|assistant|>"
                    text += self.write(text, first_seed + i) + "<|end|>"
                out.write(json.dumps({"text": text}) + "\n")
        path.with_suffix(".new").rename(path)
        return path

    def evaluate(self, model):
        words = ["eval", model, "--texts", self.evaluation, "--reference", self.args.model, "--backend", self.args.backend]
        if self.args.items:
            words += ["--jsonl", self.args.items]
        if self.args.kernels and model != self.args.model:
            words += ["--kernels", self.args.kernels]
        return json.loads(self.inlay(*words))

    def row(self, kind, method):
        """Cached in the work folder, by type and method; made again where exact match is asked for and was not then."""
        cache = self.work / f"{kind}.{method}.json"
        if cache.exists():
            result = json.loads(cache.read_text())
            if result["tasks"] or not self.args.items:
                return result
        out = self.work / ("out" if kind.startswith(FOLDERS) else "out.gguf")
        words = ["quantize", self.args.model, out, "--type", kind, "--method", method, "--json"]
        if method != "rtn" or kind.endswith("_static"):
            words += ["--calibration", self.calibration, "--calibration-tokens", self.args.calibration_tokens]
        if kind == "bf16":
            result = {"file_bytes": sum(f.stat().st_size for f in pathlib.Path(self.args.model).glob("*.safetensors"))}
            out = self.args.model
        else:
            result = {"file_bytes": json.loads(self.inlay(*words))["file_bytes"]}
        result |= self.evaluate(out)
        if kind != "bf16":
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        cache.write_text(json.dumps(result))
        return result

    def run(self):
        self.evaluation = self.texts("evaluation.jsonl", self.args.texts, 1000)
        self.calibration = self.texts("calibration.jsonl", self.args.calibration_texts, 100000)
        only = set(self.args.only.split(",")) if self.args.only else None
        print("| format | method | MB | perplexity | KL | same first | " + " | ".join(["command", "recall", "sums", "dialogue"]) + " |")
        print("|---" * 10 + "|")
        for kind, method in [("bf16", "-")] + ROWS:
            if only is not None and kind not in only:
                continue
            r = self.row(kind, method)
            against = r["against_reference"]
            tasks = [f"{100 * r['tasks'][t]:.1f}" if t in r["tasks"] else "-" for t in ("command", "recall", "sums", "dialogue")]
            print(f"| {kind} | {method} | {r['file_bytes'] / 1e6:.1f} | {against['perplexity']:.4f} | {against['divergence']:.2g} | "
                  f"{100 * against['same_first']:.1f} | " + " | ".join(tasks) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inlay", default="build/bin/inlay", help="the command")
    parser.add_argument("--model", default="examples/models/pocket-7m", help="a folder that is not quantised")
    parser.add_argument("--items", default="tests/data/pocket-eval/eval.jsonl", help="questions for exact match; empty: none")
    parser.add_argument("--work", required=True, help="a folder for texts and results, which are made once")
    parser.add_argument("--texts", type=int, default=30, help="texts to measure on")
    parser.add_argument("--calibration-texts", type=int, default=100)
    parser.add_argument("--calibration-tokens", type=int, default=8192)
    parser.add_argument("--only", help="types, with commas between")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--kernels", help="as the command's, for quantised models: gemm=cuda_int8, say")
    parser.add_argument("--threads", type=int, default=2)
    Bench(parser.parse_args()).run()


if __name__ == "__main__":
    main()
