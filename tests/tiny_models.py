"""Tiny random models of each family, with tokenizers trained on a few lines of text.

The function of each of `FAMILIES` returns a model with its usual head and a tokenizer; `save`
writes both.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

hf.logging.disable_progress_bar()

TEXT = (
    "The cat sat on the mat, and the dog watched it.",
    "Dr. Smith doesn't like New York's rainy winters; she'd rather live in Paris!",
    "Naïve readers in Zürich pay 3,50 € for coffee (or £2.75 in London).",
    "東京は日本の首都です。 It is home to 14 million people 😀.",
    "Unbelievably, the re-election was uncontested - 'twas a landslide.",
)
LETTERS = sorted(set("".join(TEXT) + string.ascii_letters) - {" "})
POSITIONS = 64
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": POSITIONS,
}
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
FAMILIES = (
    "bert", "roberta", "xlm_roberta", "distilbert", "albert", "electra", "mpnet", "deberta",
    "deberta_v2", "modernbert", "gpt2", "t5",
)  # fmt: skip


def wordpiece(specials: list[str]) -> dict[str, int]:
    words = [text for text, _ in _words(pre_tokenizers.BertPreTokenizer())]
    long = [word for word in words if len(word) > 2]
    letters = sorted({*LETTERS, *"".join(words)})
    pieces = [
        *specials,
        *letters,
        *(f"##{letter}" for letter in letters),
        *_common([word[:size] for word in long for size in (2, 3)]),
        *_common([f"##{word[1:][:size]}" for word in long for size in (2, 3)]),
    ]
    return {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}


def byte_level(specials: list[str]) -> dict[str, object]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=specials,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {"vocab": tokenizer.get_vocab(), "merges": [tuple(pair) for pair in merges]}


def unigram(specials: list[str], unk: str) -> list[tuple[str, float]]:
    words = [text for text, _ in _words(pre_tokenizers.Metaspace())]
    letters = sorted({*LETTERS, *"".join(words)})
    parts = [word[start : start + size] for word in words for size in (2, 3)
             for start in range(len(word) - size + 1)]  # fmt: skip
    scores = dict.fromkeys(specials, 0.0) | dict.fromkeys(letters, -8.0)
    scores |= {part: -5.0 - rank / 64 for rank, part in enumerate(_common(parts)) if part != unk}
    return list(scores.items())


def built(model_class: type, tokenizer: hf.PreTrainedTokenizerBase, **settings):
    """Build a random model of a class; its vocabulary has the size of its tokenizer."""
    config = model_class.config_class(vocab_size=len(tokenizer), **settings)
    return model_class(config), tokenizer


def bert(head: type = hf.BertForMaskedLM):
    return built(head, hf.BertTokenizer(vocab=wordpiece(BERT_SPECIALS)), **SIZES)


def roberta():
    tokenizer = hf.RobertaTokenizer(**byte_level(ROBERTA_SPECIALS))
    return built(hf.RobertaForMaskedLM, tokenizer, type_vocab_size=1, **SIZES)


def xlm_roberta():
    tokenizer = hf.XLMRobertaTokenizer(vocab=unigram(ROBERTA_SPECIALS, "<unk>"))
    return built(hf.XLMRobertaForMaskedLM, tokenizer, type_vocab_size=1, **SIZES)


def distilbert():
    tokenizer = hf.DistilBertTokenizer(vocab=wordpiece(BERT_SPECIALS))
    sizes = {"dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 32}
    sizes["max_position_embeddings"] = POSITIONS
    return built(hf.DistilBertForMaskedLM, tokenizer, **sizes)


def albert():
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = hf.AlbertTokenizer(vocab=unigram(specials, "<unk>"))
    return built(hf.AlbertForMaskedLM, tokenizer, embedding_size=16, **SIZES)


def electra(head: type = hf.ElectraForMaskedLM):
    tokenizer = hf.ElectraTokenizer(vocab=wordpiece(BERT_SPECIALS))
    return built(head, tokenizer, embedding_size=16, **SIZES)


def mpnet():
    specials = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    return built(hf.MPNetForMaskedLM, hf.MPNetTokenizer(vocab=wordpiece(specials)), **SIZES)


def deberta():
    tokenizer = hf.DebertaTokenizer(**byte_level(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]))
    config = hf.DebertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=2, pos_att_type=["c2p", "p2c"], **SIZES
    )
    config.relative_attention = True
    return hf.DebertaForMaskedLM(config), tokenizer


def deberta_v2():
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    tokenizer = hf.DebertaV2Tokenizer(vocab=unigram(specials, "[UNK]"), unk_id=3)
    config = hf.DebertaV2Config(
        vocab_size=len(tokenizer),
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["c2p", "p2c"],
        position_biased_input=False,
        **SIZES,
    )
    return hf.DebertaV2ForMaskedLM(config), tokenizer


def modernbert():
    specials = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    parts = byte_level(specials)
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("cls", "sep", "pad", "mask")}
    backend = hf.RobertaTokenizer(**parts, **names).backend_tokenizer
    backend.post_processor = hf.DebertaTokenizer(**parts).backend_tokenizer.post_processor
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )
    config = hf.ModernBertConfig(
        vocab_size=len(tokenizer),
        local_attention=8,
        global_attn_every_n_layers=3,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        **SIZES,
    )
    return hf.ModernBertForMaskedLM(config), tokenizer


def gpt2():
    tokenizer = hf.GPT2Tokenizer(**byte_level(["<|endoftext|>"]))
    sizes = {"n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": POSITIONS}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_token_id)
    return built(hf.GPT2LMHeadModel, tokenizer, **sizes, **ends)


def llama():
    """Four heads of queries over two of keys and values."""
    _, tokenizer = gpt2()
    settings = {"num_key_value_heads": 2, "attention_bias": True}
    return built(hf.LlamaForCausalLM, tokenizer, **settings, **SIZES)


def mistral():
    """A causal window of six tokens in every layer."""
    _, tokenizer = gpt2()
    settings = {"num_key_value_heads": 2, "sliding_window": 6}
    return built(hf.MistralForCausalLM, tokenizer, **settings, **SIZES)


def t5():
    tokenizer = hf.T5Tokenizer(vocab=unigram(["<pad>", "</s>", "<unk>"], "<unk>"), extra_ids=5)
    sizes = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 3, "num_heads": 4}
    return built(hf.T5ForConditionalGeneration, tokenizer, **sizes)


def mamba():
    _, tokenizer = gpt2()
    sizes = {"hidden_size": 24, "state_size": 4, "num_hidden_layers": 2}
    return built(hf.MambaForCausalLM, tokenizer, **sizes)


def save(folder: Path, model: hf.PreTrainedModel, tokenizer: hf.PreTrainedTokenizerBase) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def edit(path, **changes):
    """Change entries of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=3))


def spread(model: torch.nn.Module, *, factor: float = 12.0) -> torch.nn.Module:
    """Scale the random weights up, so that maps are far from uniform, and jitter all others."""
    if model.config.model_type == "t5":  # T5 starts with larger weights than the others
        factor /= 8
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(factor)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _words(splitter: pre_tokenizers.PreTokenizer) -> list[tuple[str, tuple[int, int]]]:
    """Split the text as a tokenizer would; trainers draw ties by chance, so none is used here."""
    normalize = normalizers.BertNormalizer(lowercase=True).normalize_str
    return [word for line in TEXT for word in splitter.pre_tokenize_str(normalize(line))]


def _common(parts: list[str], count: int = 24) -> list[str]:
    counts = Counter(parts)
    return sorted(counts, key=lambda part: (-counts[part], part))[:count]
