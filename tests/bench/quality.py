#!/usr/bin/env python3
"""How good quantised weights are: every format and method on one model, as rows of a Markdown table.

Texts that the model writes itself at temperature 1 are what it is measured and, with other seeds, calibrated on. Of each
row: file size, perplexity, KL divergence from the stored weights' distributions (nats), how often the likeliest token is
the same, and exact match by task. Needs the command, nothing else. Texts and finished rows stay in the work folder, so
that it may be stopped and goes on where it was; a new build wants a new folder. Run from the repository's root:

    python3 tests/bench/quality.py --work /tmp/quality --markdown core/quantize/QUALITY.md
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

# What texts begin with; the model writes the message and the reply to it.
STARTS = ["<|user|>Tell a story about", "<|user|>", "<|system|>You are", "<|user|>Echo:", "Once upon a time,"]

FOLDERS = ("u4_", "i8_", "awq_", "w8a8_", "w4a16_", "nf4", "fp4")
TASKS = ("command", "recall", "sums", "dialogue")
ACT_ORDER = "gptq act-order"

# Types, and the methods that each is tried by: all types that there are (`check` says of which there is none), and of methods those that gain by them. In
# GGUF embeddings have the type too; in folders they stay as they are.
ALL = ("rtn", "imatrix", "gptq", ACT_ORDER, "awq")
FORMATS = [
    (("f32", "bf16", "f16"), ("rtn",)),
    (("q8_0",), ("rtn", "gptq", "smoothquant")),
    (("w8a8_int8",), ("rtn", "gptq", "smoothquant")),
    (("w8a8_fp8", "w8a8_fp8_tensor", "w8a8_fp8_static", "w8a8_fp8_block"), ("rtn", "smoothquant")),
    (("i8_g32", "i8_g64", "i8_g128", "i8_channel"), ("rtn", "gptq")),
    (("i8_g32_sym", "i8_g64_sym", "i8_g128_sym", "i8_channel_sym"), ("rtn", "gptq")),
    (("q6_k",), ("rtn", "imatrix", "gptq")),
    (("q5_k",), ALL),
    (("q5_k_m", "q5_k_s", "q5_1", "q5_0"), ("rtn", "gptq")),
    (("u4_g32", "u4_g64", "u4_g128", "u4_channel"), ALL),
    (("u4_g32_sym", "u4_g64_sym", "u4_g128_sym", "u4_channel_sym"), ("rtn", "gptq")),
    (("awq_g32", "awq_g64", "awq_g128"), ("rtn", "awq")),
    (("w4a16_g32", "w4a16_g64"), ("rtn", "gptq")),
    (("w4a16_g128",), ALL),
    (("w4a16_channel",), ("rtn", "gptq")),
    (("w4a16_g32_asym", "w4a16_g64_asym", "w4a16_g128_asym", "w4a16_channel_asym"), ("rtn", "gptq")),
    (("q4_k_m", "q4_k_s"), ("rtn", "imatrix", "gptq")),
    (("q4_k", "q4_1", "q4_0", "iq4_nl", "iq4_xs"), ALL),
    (("nf4", "fp4", "nvfp4", "mxfp4"), ("rtn",)),
    (("q3_k_l", "q3_k_m", "q3_k_s"), ("rtn", "imatrix", "gptq")),
    (("q3_k",), ALL),
    (("iq3_s", "iq3_xxs"), ("rtn",)),
    (("q2_k",), ALL),
    (("iq2_s", "iq2_xs", "iq2_xxs", "tq2_0", "tq1_0", "iq1_m", "iq1_s"), ("rtn",)),
]
ROWS = [("stored", "-")] + [(kind, method) for kinds, methods in FORMATS for kind in kinds for method in methods]

# What the table stands between in a file that has more.
BEGIN, END = "<!-- quality.py writes from here -->", "<!-- to here -->"


class Failed(Exception):
    pass


class Bench:
    def __init__(self, args):
        self.args = args
        self.command = str(pathlib.Path(args.build) / "inlay")
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        # What rows that are there were made with.
        self.settings = {name: getattr(args, name) for name in
                         ("model", "texts", "calibration_texts", "calibration_tokens", "backend", "kernels", "items")}

    def try_inlay(self, *words):
        command = [self.command, *map(str, words), "--quiet", "--threads", str(self.args.threads)]
        return command, subprocess.run(command, capture_output=True, text=True, check=False)

    def inlay(self, *words):
        command, done = self.try_inlay(*words)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def check(self):
        """Says which types have no row: a wrong one is answered by all there are."""
        _, done = self.try_inlay("quantize", self.args.model, self.work / "none", "--type", "none")
        known = done.stderr.partition("allowed: ")[2].split("\n")[0].replace(" ", "").split(",")
        for kind in known:
            if kind not in {kind for kind, _ in ROWS}:
                print(f"no row is of the type {kind}", file=sys.stderr)

    def write(self, prompt, seed):
        """What the model goes on with after `prompt`."""
        lines = self.inlay("generate", self.args.model, "--prompt", prompt, "--temperature", 1, "--top-k", 0, "--top-p", 1, "--min-p", 0,
                           "--seed", seed, "--max-tokens", 200, "--backend", self.args.backend, "--json").splitlines()
        events = [json.loads(line) for line in lines]
        return "".join(event["text"] for event in events if event.get("event") == "tokens")

    def text(self, number, seed):
        start = STARTS[number % len(STARTS)]
        text = start + self.write(start, seed)
        if start.startswith("<|system|>"):
            text += "<|end|><|user|>"
            text += self.write(text, seed)
        if start.startswith("<|"):
            text += "<|end|><|assistant|>"
            text += self.write(text, seed) + "<|end|>"
        return text

    def texts(self, pool, name, count, first_seed):
        """A file of `count` texts; made once."""
        path = self.work / f"{name}.{count}.jsonl"
        if not path.exists():
            texts = list(pool.map(lambda i: self.text(i, first_seed + i), range(count)))
            new = path.with_suffix(".new")
            new.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
            new.rename(path)
        return path

    def evaluate(self, model):
        words = ["eval", model, "--texts", self.evaluation, "--reference", self.args.model, "--backend", self.args.backend]
        if self.args.items:
            words += ["--jsonl", self.args.items]
        if self.args.kernels and model != self.args.model:
            words += ["--kernels", self.args.kernels]
        return json.loads(self.inlay(*words))

    def cache(self, kind, method):
        return self.work / f"{kind}.{method.replace(' ', '.')}.json"

    def finished(self, kind, method):
        """The row, or None where it is to be made."""
        cache = self.cache(kind, method)
        if not cache.exists():
            return None
        result = json.loads(cache.read_text())
        return result if result["settings"] == self.settings else None

    def row(self, kind, method):
        result = self.finished(kind, method)
        if result is not None:
            return result
        start = time.monotonic()
        if kind == "stored":
            size = sum(f.stat().st_size for f in pathlib.Path(self.args.model).glob("*.safetensors"))
            result = {"file_bytes": size} | self.evaluate(self.args.model)
        else:
            name = self.cache(kind, method).stem
            out = self.work / (name + ("" if kind.startswith(FOLDERS) else ".gguf"))
            words = ["quantize", self.args.model, out, "--type", kind, "--method", method.split()[0], "--json"]
            if method == ACT_ORDER:
                words += ["--act-order"]
            if method != "rtn" or kind.endswith("_static"):
                words += ["--calibration", self.calibration, "--calibration-tokens", self.args.calibration_tokens]
            result = {"file_bytes": json.loads(self.inlay(*words))["file_bytes"]} | self.evaluate(out)
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        result["settings"] = self.settings
        new = self.cache(kind, method).with_suffix(".new")
        new.write_text(json.dumps(result))
        new.rename(self.cache(kind, method))
        print(f"{kind} {method}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        return result

    def selected(self):
        patterns = self.args.only.split(",") if self.args.only else ["*"]
        return [(kind, method) for kind, method in ROWS
                if any(fnmatch.fnmatch(name, pattern) for name in (kind, f"{kind}.{method}") for pattern in patterns)]

    def run(self):
        """False where a row failed."""
        self.check()
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            self.evaluation = self.texts(pool, "evaluation", self.args.texts, 1000)
            self.calibration = self.texts(pool, "calibration", self.args.calibration_texts, 100000)
            futures = [(row, pool.submit(self.row, *row)) for row in self.selected()]
            rows = []
            for (kind, method), future in futures:
                try:
                    rows.append((kind, method, future.result()))
                except Failed as failure:
                    print(f"{kind} {method} failed: {failure}", file=sys.stderr)
        if rows:
            self.show(rows)
        return len(rows) == len(futures)

    def show(self, rows):
        tokens = rows[0][2]["against_reference"]["tokens"]
        lines = [f"{pathlib.Path(self.args.model).name} on {tokens:,} tokens of {self.args.texts} texts that it writes itself at temperature 1 "
                 f"(stories, messages, dialogues, copies); calibration: at most {self.args.calibration_tokens:,} tokens of "
                 f"{self.args.calibration_texts} texts with other seeds.", "",
                 "| format | method | MB | perplexity | KL | same first | exact match |", "|---" * 7 + "|"]
        for kind, method, r in rows:
            against = r["against_reference"]
            tasks = " / ".join(f"{100 * r['tasks'][task]:.1f}" for task in TASKS if task in r["tasks"]) or "-"
            lines.append(f"| {kind} | {method} | {r['file_bytes'] / 1e6:.1f} | {against['perplexity']:.4f} | {against['divergence']:.2g} | "
                         f"{100 * against['same_first']:.1f} | {tasks} |")
        table = "\n".join(lines) + "\n"
        print(table, end="")
        if not self.args.markdown:
            return
        path = pathlib.Path(self.args.markdown)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        before, begin, rest = old.partition(BEGIN + "\n")
        after = rest.partition(END + "\n")[2]
        path.write_text(f"{before}{begin}{table}{END}\n{after}" if begin else table, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/bin", help="the folder of the command")
    parser.add_argument("--model", default="examples/models/pocket-7m", help="a folder that is not quantised")
    parser.add_argument("--items", default="tests/data/pocket-eval/eval.jsonl", help="questions for exact match; empty: none")
    parser.add_argument("--work", required=True, help="a folder for texts and results, which are made once")
    parser.add_argument("--markdown", help=f"a file to write the table to: between its lines {BEGIN} and {END}, if it has them")
    parser.add_argument("--texts", type=int, default=30, help="texts to measure on")
    parser.add_argument("--calibration-texts", type=int, default=100)
    parser.add_argument("--calibration-tokens", type=int, default=8192)
    parser.add_argument("--only", help="types, or TYPE.METHOD, with commas between; * and ? match; \"stored\": the model itself")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--kernels", help="as the command's, for quantised models: gemm=cuda_int8, say")
    parser.add_argument("--threads", type=int, default=2, help="of each job")
    parser.add_argument("--jobs", type=int, help="rows at a time (default: as many as there are cores for)")
    args = parser.parse_args()
    if args.jobs is None:
        args.jobs = max(1, (os.cpu_count() or 1) // args.threads)
    sys.exit(0 if Bench(args).run() else 1)


if __name__ == "__main__":
    main()
