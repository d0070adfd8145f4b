#!/usr/bin/env python3
"""Chat prompts beside transformers': what tokenizer_config.json, special_tokens_map.json, added_tokens.json and templates of a folder come to.

For each variation a folder with one of tests/data's tokenizers: the text of apply_chat_template, and its ids. A line for each that is not equal:

    DIFFERS   another text
    IDS       other ids of the same text
    REFUSED   an error of one of the two
    neither   errors of both

Not a test: transformers is no dependency of Inlay's. From the repository's root:

    pip install transformers==5.24.0 torch && python3 tests/reference/compare_chat.py
"""
import argparse
import itertools
import json
import pathlib
import shutil
import subprocess
import tempfile
import warnings

warnings.filterwarnings("ignore")

import transformers  # noqa: E402

transformers.logging.set_verbosity_error()

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.thinking is defined %}({{ m.thinking }})"
            "{% endif %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
SEEN = ("{{ tools is defined }} {{ tools is none }} {{ documents is defined }} {{ add_generation_prompt is defined }} {{ add_generation_prompt }} "
        "{% for t in [bos_token, eos_token, unk_token, pad_token, sep_token, cls_token, mask_token, image_token, audio_token] %}[{{ t }}]{% endfor %}"
        "{% for m in messages %}{% for k in m %}{{ k }},{% endfor %};{% endfor %}")
HI = {"messages": [{"role": "user", "content": "Hi there"}]}
LONG = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi", "name": None},
                     {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
                     {"role": "assistant", "content": "A", "reasoning": "R"}, {"role": "assistant", "content": "A", "thinking": "T", "reasoning_content": None}]}
TOOLS = {**HI, "tools": [{"type": "function", "function": {"name": "f"}}]}
CHATS = [HI, LONG, TOOLS, {**HI, "tools": []}, {**HI, "add_generation_prompt": True}, {**HI, "bos_token": "B", "pad_token": "P"}]
BEGUN = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, \n"}], "continue_final_message": True}
LAST = {"role": "assistant", "content": "A", "reasoning": "R"}
PARTS = [{"type": "text", "text": "A "}, {"type": "text", "text": "B"}, {"type": "image"}]
CONTINUED = [BEGUN, {**BEGUN, "add_generation_prompt": True}, {**BEGUN, "add_generation_prompt": False}, {**BEGUN, "continue_final_message": False},
             {**HI, "continue_final_message": True}, {**LONG, "continue_final_message": "reasoning_content"}, {**LONG, "continue_final_message": "thinking"},
             {"messages": [LAST], "continue_final_message": "reasoning"}, {"messages": [LAST], "continue_final_message": "content"},
             {"messages": [LAST], "continue_final_message": "name"}, {"messages": [LAST | {"content": None}], "continue_final_message": True},
             {"messages": [LAST | {"content": ""}], "continue_final_message": True}, {"messages": [LAST | {"content": PARTS}], "continue_final_message": True},
             {"messages": [LAST | {"content": PARTS[2:]}], "continue_final_message": True}, {"messages": [], "continue_final_message": True},
             {"messages": [LAST | {"content": 7}], "continue_final_message": True},
             {"messages": [LAST | {"content": "x CONTINUE_FINAL_MESSAGE_TAG y"}, LAST], "continue_final_message": True}]
# What templates do with a content, of chats whose last message is to be continued.
CONTINUING = [TEMPLATE, TEMPLATE.replace("m.content", "m.content | trim"), TEMPLATE.replace("m.content", "m.content | upper"),
              TEMPLATE.replace("m.content", "m.content.split('</think>')[-1].lstrip('\\n')"), TEMPLATE.replace("m.thinking", "m.reasoning_content"),
              "{% for m in messages %}{{ m.role }}{% if m.content is string %}:{{ m.content }};{% else %}{% for c in m.content %}{% if c.type == 'text' %}"
              "[{{ c.text }}]{% endif %}{% endfor %}{% endif %}{% endfor %}", "{{ messages | length }}"]
NAMED = [{"name": "tool_use", "template": "T" + TEMPLATE}, {"name": "rag", "template": "R" + TEMPLATE}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def added(**tokens):
    return {"added_tokens_decoder": {number: {"content": text, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
                                     for number, text in tokens.items()}}


# Files of a folder, beside a tokenizer.json. PreTrainedTokenizerFast: transformers takes nothing from a class.
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
FOLDERS = [
    {"tokenizer_config.json": PLAIN},
    {"tokenizer_config.json": PLAIN | TOKENS},
    {"tokenizer_config.json": PLAIN | {"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False, "rstrip": False, "normalized": False,
                                                     "single_word": False}, "eos_token": None}},
    {"tokenizer_config.json": PLAIN | {"chat_template": SEEN} | TOKENS},
    {"tokenizer_config.json": PLAIN | {"chat_template": SEEN, "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>", "image_token": "<i>",
                                       "extra_special_tokens": {"audio_token": "<a>"}} | TOKENS},
    {"tokenizer_config.json": PLAIN | {"chat_template": SEEN}, "special_tokens_map.json": TOKENS | {"pad_token": {"content": "<pad>", "lstrip": False,
                                                                                                          "rstrip": False, "normalized": False, "single_word": False}}},
    {"tokenizer_config.json": PLAIN | TOKENS, "special_tokens_map.json": {"bos_token": "</s>", "eos_token": "<s>"}},
    {"tokenizer_config.json": PLAIN | {"bos_token": None}, "special_tokens_map.json": TOKENS},
    {"tokenizer_config.json": PLAIN | TOKENS | added(), "special_tokens_map.json": {"bos_token": "</s>", "eos_token": "<s>"}},
    {"tokenizer_config.json": PLAIN | TOKENS | added(**{"90000": "<|user|>", "90001": "<|assistant|>"})},
    {"tokenizer_config.json": PLAIN | TOKENS, "added_tokens.json": {"<|user|>": 90000, "<|assistant|>": 90001}},
    {"tokenizer_config.json": PLAIN | TOKENS | {"add_bos_token": True, "add_eos_token": True}},
    {"tokenizer_config.json": PLAIN | TOKENS | {"add_bos_token": False}},
    {"tokenizer_config.json": PLAIN | {"chat_template": NAMED + [{"name": "default", "template": TEMPLATE}]} | TOKENS},
    {"tokenizer_config.json": PLAIN | {"chat_template": NAMED} | TOKENS},
    {"tokenizer_config.json": PLAIN | TOKENS, "chat_template.jinja": "J" + TEMPLATE},
    {"tokenizer_config.json": PLAIN | {"chat_template": NAMED} | TOKENS, "chat_template.jinja": "J" + TEMPLATE},
    {"tokenizer_config.json": PLAIN | TOKENS, "chat_template.jinja": "J" + TEMPLATE, "additional_chat_templates/tool_use.jinja": "F" + TEMPLATE},
    {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}, "chat_template.jinja": TEMPLATE},
    {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}},
    {"tokenizer_config.json": PLAIN | {"model_max_length": float("inf"), "scale": float("-inf"), "other": float("nan")} | TOKENS
     | added(**{"90000": "<|user|>", "90001": "<|assistant|>"})},
    {"tokenizer_config.json": PLAIN | {"model_max_length": 1000000000000000019884624838656} | TOKENS | added(**{"90000": "<|user|>"})},
]


TOKENIZERS = [("spbpe_llama2", "<s>", "</s>"), ("bbpe_llama3", "<|begin_of_text|>", "<|end_of_text|>"), ("bbpe_qwen2", "<|im_start|>", "<|im_end|>"),
              ("spbpe_gemma", "<s>", "</s>"), ("unigram_bytefallback", "<s>", "</s>")]


def run(inlay, *args, stdin=None):
    done = subprocess.run([inlay, *args], capture_output=True, text=True, check=False, input=stdin)
    return (done.stdout, None) if done.returncode == 0 else (None, (done.stderr or done.stdout).strip())


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def compare(inlay, folder, chat, listed, what):
    try:
        arguments = dict(chat)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        messages = arguments.pop("messages")
        want = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
        ids = tokenizer.apply_chat_template(messages, return_dict=False, **arguments)
    except Exception as error:  # pylint: disable=broad-except
        want, ids = None, f"{type(error).__name__}: {str(error)[:90]!r}"
    (folder / "chat.json").write_text(json.dumps(chat))
    got, said = run(inlay, "template", str(folder), "--input", str(folder / "chat.json"), "--json")
    if want is None or got is None:
        same = want is None and got is None
        print("neither  " if same else "REFUSED  ", what, ids if want is None else "renders", "; Inlay:", said or "renders", flush=True)
        return
    text = json.loads(got)["text"]
    if text != want:
        print("DIFFERS  ", what, repr(want), "; Inlay:", repr(text), flush=True)
    got, said = run(inlay, "tokenize", str(folder), "--no-special", stdin=json.dumps(want) + "\n")
    own = json.loads(got) if got is not None else said
    # A token that a configuration names and no list has gets an id of its own there; no model knows it.
    named = set(tokenizer.special_tokens_map.values()) - listed
    if own != ids and not any(token in want for token in named):
        print("IDS      ", what, repr(want), ids, "; Inlay:", own, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inlay", default="build/bin/inlay")
    args = parser.parse_args()
    data = pathlib.Path("tests/data")
    cases = 0
    continuing = [{"tokenizer_config.json": PLAIN | {"chat_template": template} | TOKENS} for template in CONTINUING]
    for name, begin, end in TOKENIZERS:
        for files, chat in [*itertools.product(FOLDERS, CHATS), *itertools.product(continuing, CONTINUED)]:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                shutil.copy(data / "tokenizers" / name / "tokenizer.json", folder)
                write(folder, json.loads(json.dumps(files).replace("<s>", begin).replace("</s>", end)))
                source = json.loads((folder / "tokenizer.json").read_text())
                vocab = source["model"]["vocab"]
                listed = {token["content"] for token in source["added_tokens"]} | {"<|user|>", "<|assistant|>"} | (
                    set(vocab) if isinstance(vocab, dict) else {piece for piece, _ in vocab})
                what = {k: v for k, v in files.items() if k != "tokenizer_config.json"} | {
                    k: v for k, v in files["tokenizer_config.json"].items() if PLAIN.get(k) != v}
                compare(args.inlay, folder, chat, listed, f"{name} {what} {chat if chat is not HI else ''}")
                cases += 1
    print(f"== {cases} chats")


if __name__ == "__main__":
    main()
