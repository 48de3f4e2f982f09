"""Recognise the files of a checkpoint, and refuse those that cannot be read, with the reason.

Nothing here reads weights or imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.errors import ModelError

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MODULES = "modules.json"  # of a sentence-transformers model
# Other formats of weights, by the ending of their files.  Those of torch are pickles.
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
OTHER_FORMATS = {
    ".gguf": "GGUF files, which are quantised",
    ".onnx": "ONNX files",
    ".h5": "weights of TensorFlow",
    ".msgpack": "weights of Flax",
}
# Files that a training writes next to weights, which are not weights.
NOT_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "optimizer.bin")


def weight_files(folder: Path) -> list[Path]:
    """List the files with weights of a whole model."""
    return [path for path in sorted(folder.glob("*.safetensors")) if path.name != ADAPTER_WEIGHTS]


def read_config(name: str, folder: Path) -> dict[str, Any]:
    """Read config.json; ModelError if there is none, or if it is damaged."""
    path = folder / CONFIG
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelError(
            f"model {name!r}: there is no config.json in {folder}. Save the model with "
            "model.save_pretrained(folder), which writes it."
        ) from error
    except ValueError as error:
        raise ModelError(
            f"model {name!r}: {path} is not JSON ({error}). Get a complete copy of the model."
        ) from error


def check_files(name: str, folder: Path, *, is_local: bool) -> None:
    """Check that a folder holds a model whose weights can be read.

    Parameters
    ----------
    name : str
        The name of the model, for messages.
    folder : Path
        Its files.
    is_local : bool
        Whether the user named the folder, and not a model of the hub.

    Raises
    ------
    ModelError
        If it is an adapter, if the model is in a folder inside, or if there are no safetensors
        weights.
    """
    has_weights = bool(weight_files(folder))
    if (folder / ADAPTER_CONFIG).is_file() and not has_weights:
        _refuse_adapter(name, folder)
    if has_weights and "model_type" in read_config(name, folder):
        return
    inner = _inner_model(folder)
    if inner is not None:
        raise ModelError(
            f"model {name!r}: it is a model of sentence-transformers, and its transformer is in "
            f"the folder {inner}. Use --model {folder / inner if is_local else inner}."
        )
    if not has_weights:
        _refuse_format(name, folder, is_local=is_local)
    # Without a model type transformers guesses one from the name of the folder.
    raise ModelError(
        f"model {name!r}: config.json has no model_type, so it does not say what the model is. "
        "Save the model with model.save_pretrained(folder)."
    )


def _refuse_adapter(name: str, folder: Path) -> None:
    """Raise the error for the folder of a PEFT adapter, which names its base model."""
    adapter = json.loads((folder / ADAPTER_CONFIG).read_bytes())
    base = adapter.get("base_model_name_or_path") or "its base model"
    raise ModelError(
        f"model {name!r}: it is a PEFT adapter for {base}, not a whole model. Merge the two with "
        "peft: AutoPeftModel.from_pretrained(folder).merge_and_unload().save_pretrained(merged), "
        f"and save the tokenizer of {base} in the same folder."
    )


def _inner_model(folder: Path) -> str | None:
    """Find the folder of the transformer in a model of sentence-transformers, by modules.json."""
    if not (folder / MODULES).is_file():
        return None
    for module in json.loads((folder / MODULES).read_bytes()):
        if module.get("type", "").endswith("Transformer") and module.get("path"):
            return module["path"]
    return None


def _refuse_format(name: str, folder: Path, *, is_local: bool) -> None:
    """Raise the error for a folder without safetensors weights, which says what it has instead."""
    if not is_local:
        raise ModelError(
            f"model {name!r}: this revision has no *.safetensors weights on the hub, and other "
            "formats can run code. Use --revision of a branch that has them, such as refs/pr/1 if "
            "the page of the model lists a pull request that adds them, or convert a copy that "
            "you trust with save_pretrained(folder)."
        )
    checkpoints = [path for path in folder.glob("checkpoint-*") if weight_files(path)]
    if checkpoints:
        newest = max(checkpoints, key=lambda path: int(path.name.partition("-")[2] or 0))
        raise ModelError(
            f"model {name!r}: it is the output folder of a training, and the model is in the "
            f"folders checkpoint-*. Use --model {newest}."
        )
    files = [path for path in sorted(folder.rglob("*")) if path.name not in NOT_WEIGHTS]
    pickles = [path.name for path in files if path.suffix in PICKLES]
    if pickles:
        raise ModelError(
            f"model {name!r}: the weights are pickled ({pickles[0]}), and reading a pickle can run "
            f"code. If you trust the file, convert it: load it with {_model_class(folder)}"
            ".from_pretrained(folder), and write *.safetensors with save_pretrained(folder)."
        )
    for ending, meaning in OTHER_FORMATS.items():
        if any(path.suffix == ending for path in files):
            raise ModelError(
                f"model {name!r}: it has only {meaning}, and this program reads *.safetensors "
                "weights. Use the folder or hub name of the original model."
            )
    raise ModelError(
        f"model {name!r}: there are no *.safetensors weights in {folder}. Save the model with "
        "model.save_pretrained(folder), which writes them."
    )


def _model_class(folder: Path) -> str:
    """Name the class that reads a checkpoint with its head."""
    path = folder / CONFIG
    config: Mapping[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return (config.get("architectures") or ["AutoModel"])[0]


def explain_hub_error(name: str, error: Exception) -> str:
    """Explain why a model cannot be had from the hub, and say what to do."""
    causes = {type(error).__name__, type(error.__cause__).__name__}
    if "GatedRepoError" in causes:
        return (
            f"model {name!r}: its owner gives it to those who accept its licence. Accept it on "
            f"https://huggingface.co/{name}, then log in with 'hf auth login', or set HF_TOKEN to "
            "a token of your account."
        )
    if "RevisionNotFoundError" in causes:
        return (
            f"model {name!r}: the hub has the model, but not this revision. Check --revision: a "
            "branch, tag or commit."
        )
    if "RepositoryNotFoundError" in causes:
        return (
            f"model {name!r}: the hub has no such model, or it is private. Check the name. For a "
            "private model log in with 'hf auth login', or set HF_TOKEN to a token of your account."
        )
    return ""
