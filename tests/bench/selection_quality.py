#!/usr/bin/env python3
"""What selecting blocks of keys by content costs in answers: methods and budgets against dense attention, as rows of a Markdown table.

pocket-7m recalls one fact of lists that fill most of its 2,048 positions (made of the words of tests/data/pocket-eval, another
seed a list) and facts hidden in long texts, exact match; and the perplexity of a long text. Needs the command, nothing else. Run
from the repository's root:

    python3 tests/bench/selection_quality.py --work /tmp/selection
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

EVAL = "tests/data/pocket-eval/eval.jsonl"
METHODS = ("bounds", "kmeans", "lsh")


def read_items():
    with open(EVAL, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_lists(path, items, count, facts):
    """Lists of `facts` facts, of which one is asked for: about 9 tokens a fact; of plain words only."""
    pairs = {}
    for item in items:
        if item["task"] == "recall" and item["kind"].startswith("kv"):
            for line in item["prompt"][-1]["content"].split("\n"):
                if re.fullmatch("[a-z]+ [a-z]+ = [a-z]+", line):
                    key, value = line.split(" = ")
                    pairs[key] = value
    keys, values = sorted(pairs), sorted(set(pairs.values()))
    with open(path, "w", encoding="utf-8") as out:
        for seed in range(count):
            draw = random.Random(seed)
            asked = draw.sample(keys, facts)
            given = [draw.choice(values) for _ in asked]
            i = draw.randrange(facts)
            text = "Remember this list.\n" + "".join(f"{k} = {v}\n" for k, v in zip(asked, given)) + f"\nTell me {asked[i]}."
            out.write(json.dumps({"task": "list", "prompt": [{"role": "user", "content": text}], "answer": given[i]}) + "\n")
        for item in items:
            if item["task"] == "recall" and item["kind"] == "needle":
                out.write(json.dumps({"task": "needle", "prompt": item["prompt"], "answer": item["answer"]}) + "\n")


def write_text(path, items):
    texts = [item["prompt"][-1]["content"].split("\n\n")[0] for item in items if item.get("kind") == "needle"]
    path.write_text("\n\n".join(sorted(texts, key=len)[-6:]), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inlay", default="build/bin/inlay")
    parser.add_argument("--model", default="examples/models/pocket-7m")
    parser.add_argument("--work", required=True)
    parser.add_argument("--lists", type=int, default=24)
    parser.add_argument("--facts", type=int, default=210)
    parser.add_argument("--tokens", default="96,128,192,256,512")
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    items = read_items()
    write_lists(work / "lists.jsonl", items, args.lists, args.facts)
    write_text(work / "text.txt", items)
    print("| selection | lists | needles | perplexity |\n|---|---|---|---|")
    budgets = [int(tokens) for tokens in args.tokens.split(",")]
    for select in [None] + [f"{method}:{tokens}" for tokens in budgets for method in METHODS]:
        command = [args.inlay, "eval", args.model, "--jsonl", str(work / "lists.jsonl"), "--text", str(work / "text.txt"), "--backend",
                   "cpu", "--quiet", "--json"]
        if select is not None:
            command += ["--select", select]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        result = json.loads(done.stdout.splitlines()[-1])
        tasks = result["tasks"]
        print(f"| {select or 'dense'} | {100 * tasks['list']:.0f} % | {100 * tasks['needle']:.0f} % | {result['perplexity']:.4f} |", flush=True)


if __name__ == "__main__":
    main()
