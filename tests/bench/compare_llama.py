#!/usr/bin/env python3
"""Prompts and decode beside llama.cpp or one of its family, same GGUF files, same threads, in turn; as rows of a Markdown table.

A turn runs each file by every peer and by `inlay bench`, one after the other: machines that others use change from minute to
minute, so ratios are of the medians over turns. The peer's figure is that of its fastest way. Also told: decode's bytes a
second over what a read loop gets beside the same runs. Needs peers' llama-bench programs, built for this machine
(`cmake -DGGML_NATIVE=ON`, target llama-bench); nothing else should run. From the repository's root:

    build/bin/inlay quantize random:tests/data/shapes/llama-1b /tmp/q4_0.gguf --type q4_0 --no-tokenizer
    python3 tests/bench/compare_llama.py --peer /path/to/llama-bench --peer "/path/to/ik/llama-bench -rtr 1 -mmp 0" /tmp/q4_0.gguf
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

WORK = ("prompt", "decode")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout)


def ours(args, path):
    """Tokens a second of both, and the share of reading that decode reaches, in per cent."""
    got = run([str(pathlib.Path(args.build) / "inlay"), "bench", path, "--backend", "cpu", "--threads", str(args.threads), "--prompt-tokens",
               str(args.prompt), "--gen-tokens", str(args.gen), "--repeat", "1", "--json", "--quiet"])
    return {"prompt": got["pp_tok_s"]["mean"], "decode": got["tg_tok_s"]["mean"]}, got["percent_of_read"]


def theirs(args, peer, path):
    got = run([*shlex.split(peer), "-m", path, "-t", str(args.threads), "-p", str(args.prompt), "-n", str(args.gen), "-r", "1", "-o", "json"])
    return {"prompt" if test["n_prompt"] > 0 else "decode": test["avg_ts"] for test in got}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="GGUF files")
    parser.add_argument("--peer", action="append", required=True, help="a llama-bench program, with options of its own; may be repeated")
    parser.add_argument("--build", default="build/bin", help="the folder of inlay")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--gen", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    mine = {(path, work): [] for path in args.files for work in WORK}
    others = {(path, work, peer): [] for path in args.files for work in WORK for peer in args.peer}
    shares = {path: [] for path in args.files}
    for turn in range(args.turns):
        for path in args.files:
            for peer in args.peer:
                for work, rate in theirs(args, peer, path).items():
                    others[path, work, peer].append(rate)
            rates, share = ours(args, path)
            shares[path].append(share)
            for work, rate in rates.items():
                mine[path, work].append(rate)
        print(f"turn {turn + 1} of {args.turns}", file=sys.stderr)
    print(f"Prompts of {args.prompt}, decode of {args.gen}, tokens/s, {args.threads} threads, medians of {args.turns} turns, lowest and highest in brackets:\n")
    print("| file | prompt | peer | ratio | decode | peer | ratio | of reading |\n|---|---|---|---|---|---|---|---|")

    def cell(rates):
        return f"{statistics.median(rates):.1f} ({min(rates):.1f}, {max(rates):.1f})"

    for path in args.files:
        cells = [pathlib.Path(path).name]
        for work in WORK:
            best = max((others[path, work, peer] for peer in args.peer), key=statistics.median)
            cells += [cell(mine[path, work]), cell(best), f"{statistics.median(mine[path, work]) / statistics.median(best):.2f}"]
        print("| " + " | ".join([*cells, f"{statistics.median(shares[path]):.0f} %"]) + " |")


if __name__ == "__main__":
    main()
