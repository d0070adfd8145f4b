#!/usr/bin/env python3
"""GGUF files of encoders beside llama.cpp: what either writes, both read.

For each family a folder as published ones are, with a small random network of transformers' and a tokenizer of tests/data or one that is trained here:

    read      llama.cpp's converter makes a file of it, in float32: Inlay's embeddings of the file beside those of the folder
    written   inlay quantize makes one: llama.cpp's embeddings of it beside those of its own file
    llama     llama.cpp's embeddings of its own file beside Inlay's of the folder

All of text, so ids are compared, too, and pooled as the files say. The largest difference over all texts stands behind each, of vectors of length 1 or of labels'
logits, whose standard deviation is 1 then. DIFFERS is more than 1e-5 where one program is compared with itself, and 3e-3 otherwise (of logits, which differ
little beside one query, 2e-2): llama.cpp's GELU on CPU takes and gives numbers of 16 bits, which
rounds by 2^-11 twice in each layer.

Not a test: neither is a dependency of Inlay's. From the repository's root, with llama.cpp's source beside it (llama-cpp-python's source package has it, too):

    pip install transformers==5.24.0 torch sentencepiece xllamacpp && python3 tests/reference/compare_encoder_files.py --llama ../llama.cpp [FAMILY ...]
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
TEXTS = ["The hippo went to the bridge.", "a", "rain fell like stones on the winter bridge, and nobody heard it fall",
         " ".join(json.loads(line)["text"] for line in (DATA / "pocket-eval" / "stories.jsonl").read_text().splitlines()[:1])[:330]]
REMOVED = "(removed)"
SIZES = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 96, "max_position_embeddings": 512}
T5 = {"d_model": 64, "d_kv": 32, "d_ff": 96, "num_layers": 4, "num_heads": 3, "eos_token_id": 1}
MODULE = "sentence_transformers.models."

# Of each: its class, its keys, its tokenizer, how it pools, its Dense modules' outputs, and keys that published files have otherwise.
FAMILIES = {
    "bert": ("BertModel", {**SIZES, "type_vocab_size": 2}, "wordpiece", "cls", [], {}),
    # llama.cpp has no second segment.
    "bert_reranker": ("BertForSequenceClassification", {**SIZES, "type_vocab_size": 1, "num_labels": 1}, "wordpiece", None, [], {"id2label": {"0": "LABEL_0"}}),
    "distilbert": ("DistilBertModel", {"dim": 64, "n_layers": 3, "n_heads": 2, "hidden_dim": 96, "max_position_embeddings": 512}, "wordpiece", "mean", [], {}),
    "roberta": ("RobertaModel", {**SIZES, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}, "bbpe", "mean", [], {}),
    "xlm_roberta": ("XLMRobertaModel", {**SIZES, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}, "unigram", "cls", [], {}),
    "xlm_roberta_reranker": ("XLMRobertaForSequenceClassification", {**SIZES, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
                                                                     "num_labels": 1}, "unigram", None, [], {"id2label": {"0": "LABEL_0"}}),
    "nomic_bert": ("NomicBertModel", {**SIZES, "type_vocab_size": 2, "hidden_act": "silu", "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
                   "wordpiece", "mean", [],
                   {**dict.fromkeys([*SIZES, "hidden_act", "layer_norm_eps", "rope_parameters", "head_dim"], REMOVED), "n_embd": 64, "n_layer": 4, "n_head": 2, "n_inner": 96,
                    "n_positions": 8192, "max_trained_positions": 2048, "activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000,
                    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
                    "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "causal": False, "prenorm": False}),
    "jina_embeddings_v3": ("JinaEmbeddingsV3Model", {**SIZES, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}, "unigram", "mean", [], {}),
    "eurobert": ("EuroBertModel", {**SIZES, "num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}}, "bbpe", "mean", [],
                 {"rope_parameters": REMOVED, "rope_theta": 250000.0, "classifier_pooling": "mean"}),
    "modernbert": ("ModernBertModel", {**SIZES, "local_attention": 16}, "bbpe", "mean", [],
                   {"rope_parameters": REMOVED, "layer_types": REMOVED, "layer_norm_eps": 1e-5, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3}),
    "modernbert_reranker": ("ModernBertForSequenceClassification", {**SIZES, "local_attention": 16, "classifier_pooling": "cls", "num_labels": 1}, "bbpe", None, [],
                            {"rope_parameters": REMOVED, "layer_types": REMOVED, "layer_norm_eps": 1e-5, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
                             "global_attn_every_n_layers": 3, "id2label": {"0": "LABEL_0"}}),
    "modernbert_reranker_mean": ("ModernBertForSequenceClassification", {**SIZES, "local_attention": 16, "classifier_pooling": "mean", "num_labels": 1}, "bbpe", None, [],
                                 {"rope_parameters": REMOVED, "layer_types": REMOVED, "layer_norm_eps": 1e-5, "global_rope_theta": 160000.0,
                                  "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3, "id2label": {"0": "LABEL_0"}}),
    "gemma3_text": ("Gemma3TextModel", {**SIZES, "num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 24,
                                        "use_bidirectional_attention": True, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}, "spm_bpe", "mean", [96, 64],
                    {"rope_parameters": REMOVED, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": 24}),
    "t5": ("T5EncoderModel", {**T5, "feed_forward_proj": "relu"}, "t5", "mean", [], {}),
    "t5_gated": ("T5EncoderModel", {**T5, "feed_forward_proj": "gated-gelu"}, "t5", "mean", [], {}),
    "t5_whole": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 2, "decoder_start_token_id": 0}, "t5", "mean", [], {}),
    "umt5": ("UMT5EncoderModel", {**T5, "feed_forward_proj": "gated-gelu"}, "t5", "mean", [], {}),
}
# The converter drops BERT's pooler: such files are refused, and llama.cpp's scores of what inlay quantize writes stand beside Inlay's of the folder.
NOT_CONVERTED = {"bert_reranker"}
# What the converter knows under another name: files with code of their own, adapters and all.
CONVERTED_AS = {"jina_embeddings_v3": {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "lora_adaptations": ["text-matching"],
                                       "rotary_emb_base": 20000.0},
                # T5's converter makes a file of UMT5's encoder, too.
                "umt5": {"architectures": ["T5EncoderModel"]}}
# Whose file has a decoder, which llama.cpp runs and inlay quantize does not write.
WHOLE = {"t5_whole"}


def randomise(model):
    """Weights large enough that a part which is left out shows, norms and biases too."""
    generator = torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        drawn = torch.randn(p.shape, generator=generator)
        if p.dim() >= 2:
            drawn *= 1.2 / p.shape[-1] ** 0.5
            if name.endswith("SelfAttention.q.weight"):  # T5's scores are not scaled
                drawn *= 0.2
        elif "norm" in name.lower():
            drawn = p.float() + 0.3 * drawn
        else:
            drawn *= 0.3
        p.data = drawn


def train_sentencepiece(path, kind, **options):
    import sentencepiece

    lines = [json.loads(line)["text"] for line in (DATA / "pocket-eval" / "stories.jsonl").read_text().splitlines()]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(path.with_suffix("")), vocab_size=400, model_type=kind, minloglevel=2,
                                             hard_vocab_limit=False, **options)


def write_tokenizer(folder, kind):
    """Returns how many ids there are."""
    if kind == "wordpiece":
        shutil.copytree(DATA / "tokenizers" / "wordpiece_uncased", folder, dirs_exist_ok=True)
        return len((folder / "vocab.txt").read_text().splitlines())
    if kind == "bbpe":
        source = json.loads((DATA / "tokenizers" / "bbpe_roberta" / "tokenizer.json").read_text())
        source["pre_tokenizer"]["add_prefix_space"] = source["post_processor"]["add_prefix_space"] = False  # as published
        (folder / "tokenizer.json").write_text(json.dumps(source))
        names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
        return 1 + max(max(source["model"]["vocab"].values()), *(t["id"] for t in source["added_tokens"]))
    if kind == "spm_bpe":  # Gemma's
        train_sentencepiece(folder / "tokenizer.model", "bpe", pad_id=0, eos_id=1, bos_id=2, unk_id=3, byte_fallback=True, add_dummy_prefix=False,
                            remove_extra_whitespaces=False, normalization_rule_name="identity", user_defined_symbols=["<mask>"])
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": True, "bos_token": "<bos>",
                                                                  "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}))
        return 512
    if kind == "t5":
        train_sentencepiece(folder / "spiece.model", "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "eos_token": "</s>", "pad_token": "<pad>",
                                                                  "unk_token": "<unk>"}))
        return 512
    return write_unigram(folder)


def write_unigram(folder):
    """XLM-R's: the model, and tokenizer.json of it, which has ids of its own for what SentencePiece controls."""
    import tokenizers
    from sentencepiece import sentencepiece_model_pb2 as proto

    path = folder / "sentencepiece.bpe.model"
    train_sentencepiece(path, "unigram")
    model = proto.ModelProto()
    model.ParseFromString(path.read_bytes())
    pieces = [(p.piece, p.score) for p in model.pieces][3:]
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces, ("<mask>", 0.0)]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, unk_id=3))
    made.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
                                                       tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    made.add_special_tokens(sorted(set(names.values())))
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer", **names}))
    return len(vocab)


def write_modules(folder, pooling, dense, width):
    if pooling is None:
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_max_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": width, **modes}))
    for i, outputs in enumerate(dense, 2):
        inner = folder / f"{i}_Dense"
        inner.mkdir()
        (inner / "config.json").write_text(json.dumps({"in_features": width, "out_features": outputs, "bias": False,
                                                       "activation_function": "torch.nn.modules.linear.Identity"}))
        safetensors.torch.save_file({"linear.weight": torch.randn(outputs, width, generator=torch.Generator().manual_seed(i)) / width ** 0.5},
                                    inner / "model.safetensors", metadata={"format": "pt"})
        modules.append((f"{i}_Dense", "Dense"))
        width = outputs
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / "modules.json").write_text(json.dumps([{"idx": i, "name": str(i), "path": path, "type": MODULE + kind} for i, (path, kind) in enumerate(modules)]))


def make(folder, kind, keys, tokenizer, pooling, dense, others):
    vocab_size = write_tokenizer(folder, tokenizer)
    model_class = getattr(transformers, kind)
    config = model_class.config_class(vocab_size=vocab_size, **({"pad_token_id": 0} | keys))
    model = model_class(config)
    randomise(model)
    model.eval().save_pretrained(folder)
    path = folder / "config.json"
    written = json.loads(path.read_text()) | others
    path.write_text(json.dumps({k: v for k, v in written.items() if v != REMOVED}))
    write_modules(folder, pooling, dense, keys.get("hidden_size", keys.get("dim", keys.get("d_model"))))


def convert(llama, folder, out):
    """By llama.cpp's converter, which knows published tokenizers by what they make of a text: these are called by their models' names."""
    code = ("import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']; sys.argv[:2] = ['convert']\n"
            "from conversion.base import TextModel\n"
            "import json, pathlib\n"
            "def name(self, tokenizer):\n"
            "    if not (self.dir_model / 'tokenizer.json').exists(): return 'default'\n"
            "    if 'WordPiece' in (self.dir_model / 'tokenizer.json').read_text(): return 'jina-v2-en'\n"
            "    return {'roberta': 'roberta-bpe', 'modernbert': 'modern-bert'}.get(json.loads((self.dir_model / 'config.json').read_text())['model_type'], 'gpt-2')\n"
            "TextModel.get_vocab_base_pre = name\n"
            # Published nomic-bert, which transformers 5.24 reads as another size, came with code of its own.
            "import transformers\n"
            "def refuse(*args, **kwargs): raise ValueError('code of its own')\n"
            "if 'n_embd' in (pathlib.Path(sys.argv[1]) / 'config.json').read_text(): transformers.AutoConfig.from_pretrained = refuse\n"
            "import convert_hf_to_gguf as c\n"
            "c.main()\n")
    extra = ["--sentence-transformers-dense-modules"] if (folder / "2_Dense").exists() else []
    done = subprocess.run([sys.executable, "-c", code, str(llama), str(folder), "--outfile", str(out), "--outtype", "f32", *extra], capture_output=True, text=True, check=False)
    if done.returncode != 0 or not out.exists():
        raise RuntimeError(f"llama.cpp's converter: {done.stderr.strip().splitlines()[-1:]}")


def inlay(command, model, labels):
    """Vectors of all texts, or their logits beside the first one."""
    options = ["--backend", "cpu", "--threads", "1", "--json", "--quiet"]
    if labels:
        options += ["--query", TEXTS[0], "--documents", "-"]
    else:
        options += [option for text in TEXTS for option in ("--text", text)]
    done = subprocess.run([command, "rerank" if labels else "embed", model, *options], input="\n".join(TEXTS), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"inlay: {(done.stderr or done.stdout).strip()[-300:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if labels:
        return torch.tensor([[row["logit"]] for row in sorted(rows, key=lambda row: row["index"])])
    rows = [row["embedding"] if isinstance(row, dict) else row for row in rows]
    return torch.nn.functional.normalize(torch.tensor(rows), dim=-1)


# In a process of its own: llama.cpp ends the program where a file does not suit it.
LLAMA = """
import json, sys
import xllamacpp as x
p = x.CommonParams()
p.model.path = sys.argv[1]
p.embedding = True
p.warmup = False
p.n_ctx = p.n_batch = p.n_ubatch = 512
p.n_parallel = 1
p.verbosity = int(sys.argv[3])
p.cpuparams.n_threads = 1
labels = sys.argv[2] == "labels"
if labels:
    p.pooling_type = x.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
elif sys.argv[1].split("/")[-1] == "converted.gguf" and "t5" in sys.argv[1].split("/")[-2]:  # its converter says neither
    p.pooling_type = x.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    p.attention_type = x.llama_attention_type.LLAMA_ATTENTION_TYPE_NON_CAUSAL
server = x.Server(p)
texts = json.load(sys.stdin)
if labels:
    got = server.handle_rerank({"query": texts[0], "documents": texts})
    got = json.loads(got) if isinstance(got, str) else got
    rows = [r["relevance_score"] for r in sorted(got["results"], key=lambda r: r["index"])]
else:
    rows = []
    for text in texts:
        got = server.handle_embeddings({"input": text, "encoding_format": "float"})
        got = json.loads(got) if isinstance(got, str) else got
        rows.append(got["data"][0]["embedding"])
print("ROWS" + json.dumps(rows))
"""


def llama_cpp(model, labels):
    done = subprocess.run([sys.executable, "-c", LLAMA, str(model), "labels" if labels else "states", "0"], input=json.dumps(TEXTS), capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROWS")]
    if not rows:
        raise RuntimeError(f"llama.cpp: {(done.stderr or done.stdout).strip()[-400:]}")
    got = torch.tensor(json.loads(rows[0]))
    return got.reshape(len(TEXTS), -1) if labels else torch.nn.functional.normalize(got, dim=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--inlay", default="build/bin/inlay")
    parser.add_argument("--llama", required=True, type=pathlib.Path, help="llama.cpp's source")
    parser.add_argument("--keep", type=pathlib.Path, help="where to leave the folders and files")
    args = parser.parse_args()
    different = 0
    for name, (kind, *rest) in FAMILIES.items():
        if args.families and name not in args.families:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = (args.keep or pathlib.Path(temporary)) / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder, kind, *rest)
            labels = kind.endswith("Classification")
            own = inlay(args.inlay, folder, labels)
            rounding = 2e-2 if labels else 3e-3
            theirs, written = folder / "converted.gguf", folder / "written.gguf"

            def compare(what, limit, run):
                nonlocal different
                try:
                    one, other = run()
                    worst = ((one - other).abs().max() / (own.std() if labels else 1)).item()
                    wrong = not worst <= limit
                    print(f"{'DIFFERS' if wrong else 'equal':9} {name:20} {what:8} {worst:.2g}", flush=True)
                except RuntimeError as error:
                    wrong = True
                    print(f"FAILED    {name:20} {what:8} {error}", flush=True)
                different += wrong

            def read():
                source = folder
                if name in CONVERTED_AS:
                    source = pathlib.Path(temporary) / "renamed"
                    shutil.copytree(folder, source)
                    path = source / "config.json"
                    path.write_text(json.dumps(json.loads(path.read_text()) | CONVERTED_AS[name]))
                convert(args.llama, source, theirs)
                return inlay(args.inlay, theirs, labels), own

            def write():
                done = subprocess.run([args.inlay, "quantize", folder, written, "--type", "f32"], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise RuntimeError(f"inlay quantize: {done.stderr.strip()[-300:]}")
                return llama_cpp(written, labels), None if name in NOT_CONVERTED | WHOLE else llama_cpp(theirs, labels)

            if name not in NOT_CONVERTED:
                compare("read", 1e-5, read)
            if name in NOT_CONVERTED | WHOLE:
                compare("written", rounding, lambda: (write()[0], own))
                continue
            compare("written", 1e-5, write)
            compare("llama", rounding, lambda: (llama_cpp(theirs, labels), own))
    sys.exit(different > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
