"""Read the tokenizer of a checkpoint, which has to say which tokens belong to which word.

Only fast tokenizers do, those of the tokenizers library.  That of ESM, which transformers has in
Python only, has a token for each amino acid and is built again as a fast one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from helpers.errors import one_line
from helpers.files import read_json

UNDECODED = "\ufffd"  # in place of bytes that are no whole character
MAX_CHARACTER_TOKENS = 8  # two characters, whose bytes may share a token
VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model", "*.spm")


def read_tokenizer(folder: Path, model_type: str) -> PreTrainedTokenizerFast:
    """Read the tokenizer of a folder, and let it treat any text as text and cut nothing.

    Parameters
    ----------
    folder : Path
        The files of the model.
    model_type : str
        The family in config.json, which decides the class if the tokenizer does not name it.

    Returns
    -------
    PreTrainedTokenizerFast
    """
    if not any(path for pattern in VOCABULARIES for path in folder.glob(pattern)):
        # transformers makes up a tokenizer without words then.
        raise FileNotFoundError(f"no vocabulary in {folder}")
    settings = read_json(folder / "tokenizer_config.json")
    class_name = settings.get("tokenizer_class") or TOKENIZER_MAPPING_NAMES.get(model_type) or ""
    known_class = getattr(transformers, class_name, PreTrainedTokenizerFast)
    is_fast = issubclass(known_class, PreTrainedTokenizerFast)
    if not is_fast and (folder / "tokenizer.json").is_file():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    else:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if class_name == "EsmTokenizer" and not hasattr(tokenizer, "backend_tokenizer"):
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=esm_tokenizer(tokenizer),
            model_max_length=tokenizer.model_max_length,
            model_input_names=tokenizer.model_input_names,
            **tokenizer.special_tokens_map,
        )
    # A paragraph about BERT can contain the letters "[SEP]"; they are text there.
    tokenizer.split_special_tokens = True
    tokenizer.backend_tokenizer.encode_special_tokens = True
    # Some files ask for truncation and padding; examples are cut and padded elsewhere.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def readable_tokens(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> list[str]:
    """Write tokens for people: bytes as the characters that they stand for.

    Byte-level vocabularies write each byte as a letter of its own (``Ġcafé`` for " café"), and
    others have tokens of one byte (``<0xE6>``) for rare characters.  All other tokens stay as the
    vocabulary has them.  Do not use these names to compare tokens, because several tokens can have
    one.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerFast
        The tokenizer of a model.
    ids : sequence of int
        The tokens of a text, in order.

    Returns
    -------
    list of str
        A token that begins a word begins with a space.  Tokens that are parts of a character have
        this character and their number, as in ``我 1/3``; those of a character that is cut are
        ``\ufffd``.
    """
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    decoder = tokenizer.backend_tokenizer.decoder
    is_byte_level = b"ByteLevel" in decoder.__getstate__() if decoder else False
    readable: list[str] = []
    while len(readable) < len(tokens):
        rest = tokens[len(readable) :][:MAX_CHARACTER_TOKENS]
        if not (is_byte_level or re.fullmatch("<0x[0-9A-F]{2}>", rest[0])):
            readable.append(rest[0])
            continue
        # The shortest run of tokens whose bytes are whole characters.
        texts = [decoder.decode(rest[:size]) for size in range(1, len(rest) + 1)]
        size = next((i for i, text in enumerate(texts, 1) if UNDECODED not in text), 1)
        text = one_line(texts[size - 1])
        parts = [f"{text} {part}/{size}" for part in range(1, size + 1)]
        readable += parts if size > 1 else [text]
    return readable


def esm_tokenizer(python_tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Build the tokenizer of ESM: a token for each amino acid, unknown text in between is one.

    Parameters
    ----------
    python_tokenizer : PreTrainedTokenizerBase
        The tokenizer of transformers.

    Returns
    -------
    Tokenizer
        It gives the same ids.
    """
    vocabulary = python_tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=len, reverse=True)
    is_token = Regex("|".join(map(re.escape, tokens)))
    unknown = str(python_tokenizer.unk_token)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(is_token, "isolated")]
    )
    cls = str(python_tokenizer.cls_token)
    eos = str(python_tokenizer.eos_token)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {eos}",
        pair=f"{cls} $A {eos} $B {eos}",
        special_tokens=[(token, vocabulary[token]) for token in (cls, eos)],
    )
    return tokenizer
