"""Read the tokenizer of a checkpoint, which has to say which tokens belong to which word.

Only fast tokenizers do, those of the tokenizers library.  That of ESM, which transformers has in
Python only, has a token for each amino acid and is built again as a fast one.
"""

from __future__ import annotations

import re
from pathlib import Path

import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from helpers.files import read_json

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
