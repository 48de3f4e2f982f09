"""Read the tokenizer of a checkpoint, which has to say which tokens belong to which word.

Only fast tokenizers do, those of the tokenizers library.  Two that transformers has in Python only
are simple enough to be built again as fast ones: that of ESM, which has a token for each amino
acid, and that of ByT5, which has one for each byte.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from helpers.errors import ModelError

FAST_FILE = "tokenizer.json"
VOCABULARIES = (FAST_FILE, "vocab.*", "*.model", "*.spm")
WITHOUT_VOCABULARY = ("ByT5Tokenizer",)  # their tokens are bytes
FIRST_BYTE_ID = 3  # in ByT5, after <pad>, </s> and <unk>


def read_tokenizer(name: str, folder: Path, model_type: str) -> PreTrainedTokenizerFast:
    """Read the tokenizer of a folder, and let it treat any text as text and cut nothing.

    Parameters
    ----------
    name : str
        The name of the model, for messages.
    folder : Path
        The files of the model.
    model_type : str
        The family in config.json, which decides the class if the tokenizer does not name it.

    Returns
    -------
    PreTrainedTokenizerFast

    Raises
    ------
    ModelError
        If there is no tokenizer, or only one in Python that cannot be built as a fast one.
    """
    tokenizer_class = _class_name(folder, model_type)
    files = [file for pattern in VOCABULARIES for file in folder.glob(pattern)]
    if not files and tokenizer_class not in WITHOUT_VOCABULARY:
        # transformers makes up a tokenizer without words then.
        raise ModelError(
            f"model {name!r}: there is no tokenizer (none of {', '.join(VOCABULARIES)}). Save the "
            "model's tokenizer with tokenizer.save_pretrained(folder)."
        )
    tokenizer = _read(name, folder, tokenizer_class)
    # A paragraph about BERT can contain the letters "[SEP]"; they are text there.
    tokenizer.split_special_tokens = True
    tokenizer.backend_tokenizer.encode_special_tokens = True
    # Some files ask for truncation and padding; examples are cut and padded elsewhere.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _class_name(folder: Path, model_type: str) -> str:
    """Read off the files which class of transformers the tokenizer has; it can be empty."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_bytes()) if path.is_file() else {}
    return settings.get("tokenizer_class") or TOKENIZER_MAPPING_NAMES.get(model_type) or ""


def _read(name: str, folder: Path, tokenizer_class: str) -> PreTrainedTokenizerFast:
    """Read a fast tokenizer, or build it from one in Python."""
    known_class = getattr(transformers, tokenizer_class, PreTrainedTokenizerFast)
    if issubclass(known_class, PreTrainedTokenizerFast):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if (folder / FAST_FILE).is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    if tokenizer_class not in FAST_VERSIONS:
        raise ModelError(
            f"model {name!r}: its tokenizer, {tokenizer_class}, is written in Python and cannot "
            "say which tokens belong to which word. Put a tokenizer.json of the same tokenizer "
            "into the folder, or use a model that has one, such as a multilingual BERT."
        )
    python_tokenizer = known_class.from_pretrained(folder)
    return PreTrainedTokenizerFast(
        tokenizer_object=FAST_VERSIONS[tokenizer_class](python_tokenizer),
        model_max_length=python_tokenizer.model_max_length,
        model_input_names=python_tokenizer.model_input_names,
        **python_tokenizer.special_tokens_map,
    )


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


def byt5_tokenizer(python_tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Build the tokenizer of ByT5: a token for each byte, written as byte-level vocabularies do.

    Parameters
    ----------
    python_tokenizer : PreTrainedTokenizerBase
        The tokenizer of transformers.

    Returns
    -------
    Tokenizer
        It gives the same ids.
    """
    unknown = str(python_tokenizer.unk_token)
    eos = str(python_tokenizer.eos_token)
    special_tokens = (str(python_tokenizer.pad_token), eos, unknown)
    vocabulary = {token: number for number, token in enumerate(special_tokens)}
    for byte, letter in enumerate(_byte_letters()):
        vocabulary[letter] = FIRST_BYTE_ID + byte
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [to_bytes, pre_tokenizers.Split(Regex("."), "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A {eos} $B {eos}", special_tokens=[(eos, vocabulary[eos])]
    )
    return tokenizer


def _byte_letters() -> list[str]:
    """List the letters that byte-level vocabularies write for the bytes 0 to 255.

    Printable bytes of Latin-1 stand for themselves, and the others follow from letter 256 on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters = []
    n_others = 0
    for byte in range(256):
        letters.append(chr(byte if byte in printable else 256 + n_others))
        n_others += byte not in printable
    return letters


FAST_VERSIONS = {"EsmTokenizer": esm_tokenizer, "ByT5Tokenizer": byt5_tokenizer}
