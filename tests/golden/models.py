"""The three tiny models of the golden tables: weights by NumPy, tokenizers without training.

They belong to the golden tables alone: a change here moves every number.
"""

import re
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from tokenizers import pre_tokenizers

CORPORA = Path(__file__).parent / "corpora"
WEIGHT_SCALE = 0.35  # scores with a standard deviation of about three: heads prefer some keys
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
END_OF_TEXT = "<|endoftext|>"
SEEDS = {"encoder": 39, "decoder": 90, "window": 23}


def corpus_words():
    """List the words of all corpora, in order of their letters."""
    words = set()
    for path in sorted(CORPORA.rglob("*.*")):
        words.update(re.findall(r"[a-z]+", path.read_text().lower()))
    return sorted(words)


def encoder():
    """BERT without a head: its objective is that of sentence encoders."""
    words = corpus_words()
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*SPECIALS, *letters, *(f"##{letter}" for letter in letters), *".,-'0123456789"]
    pieces += words[::2]
    pieces += [word[:3] for word in words[1::2]]  # the others are split after their third letter
    pieces += [f"##{word[3:]}" for word in words[1::2]]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = hf.BertTokenizer(vocab=vocabulary)
    config = hf.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=WEIGHT_SCALE,
    )
    return hf.BertModel(config), tokenizer


def byte_pairs(specials):
    """Make a vocabulary of bytes and of the beginnings of every other word, and its merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = dict.fromkeys([*specials, *alphabet])
    merges = {}
    for word in corpus_words()[::2]:
        piece = "Ġ"
        for letter in word:
            merges[piece, letter] = None
            piece += letter
            vocabulary[piece] = None
    return {piece: index for index, piece in enumerate(vocabulary)}, list(merges)


def decoder():
    """Llama: a causal mask, next-token loss, and two heads that share their keys."""
    vocabulary, merges = byte_pairs([END_OF_TEXT])
    tokenizer = hf.GPT2Tokenizer(vocab=vocabulary, merges=merges)
    config = hf.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        max_position_embeddings=128,
        initializer_range=WEIGHT_SCALE,
        bos_token_id=vocabulary[END_OF_TEXT],
        eos_token_id=vocabulary[END_OF_TEXT],
    )
    return hf.LlamaForCausalLM(config), tokenizer


def window():
    """ModernBERT: masked-LM loss; the first layer sees all tokens, the others a window."""
    vocabulary, merges = byte_pairs(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"])
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("cls", "sep", "pad", "mask")}
    parts = {"vocab": vocabulary, "merges": merges}
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
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        local_attention=8,
        global_attn_every_n_layers=3,
        initializer_range=WEIGHT_SCALE,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    return hf.ModernBertForMaskedLM(config), tokenizer


BUILDERS = {"encoder": encoder, "decoder": decoder, "window": window}


def save_model(name, folder, seed=None):
    """Write a model with large random weights, and its tokenizer; return both."""
    model, tokenizer = BUILDERS[name]()
    generator = np.random.default_rng(SEEDS[name] if seed is None else seed)
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            values = torch.from_numpy(generator.standard_normal(parameter.shape)).float()
            if parameter.ndim == 2:
                parameter.copy_(values if "embed" in label else WEIGHT_SCALE * values)
            else:
                parameter.add_(0.1 * values)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
