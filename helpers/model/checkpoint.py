"""The files of a model's folder, and the reasons why some folders cannot be read.

`refusal` has a table of the reasons that a library would not name, or would name without a remedy.
It is looked up after something has failed; for all other failures the library's own words are
shown.
Nothing here reads weights or imports torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.errors import InputError, ModelError
from helpers.files import read_json

CONFIG = "config.json"
# The JSON files that transformers reads; each has one object.
OBJECTS = (CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json",
           "special_tokens_map.json", "added_tokens.json", "*.index.json")  # fmt: skip
# Then transformers lists the classes or families that it has.
BEFORE_A_LIST = re.compile("Model type should be one of|, or contain one of")


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
    files = sorted(folder.glob("*.safetensors"))
    return [path for path in files if path.name != "adapter_model.safetensors"]


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
    refusals = {  # the first condition that holds has the reason
        "it is a file. Use the folder that it is in.": folder.is_file(),
        "there is no such folder, and a model of the hub is named owner/name. Check the name.": (
            "HFValidationError" in error
        ),
        "its owner gives it to those who accept its licence. Accept it on its page on "
        "https://huggingface.co, then log in with 'hf auth login', or set HF_TOKEN.": (
            "GatedRepoError" in error
        ),
        "it has pointers of git-lfs in place of files. Run 'git lfs pull' in its folder.": (
            _has_lfs_pointers(folder)
        ),
        "it is a PEFT adapter, and not a whole model. Merge it with its base model by "
        "AutoPeftModel.from_pretrained(folder).merge_and_unload().save_pretrained(merged), and "
        "save the tokenizer in the same folder.": (
            has_no_weights and (folder / "adapter_config.json").is_file()
        ),
        f"it has a model in a folder inside it. Use --model {', or '.join(inner)}.": inner,
        "it has GGUF or ONNX files, and no *.safetensors weights. Use the original model.": (
            has_no_weights and [*folder.glob("*.gguf"), *folder.rglob("*.onnx")]
        ),
        "it has no *.safetensors weights, and reading others, such as pytorch_model.bin, can run "
        "code. Convert a copy that you trust with save_pretrained(folder), or use --revision of a "
        "branch of the hub that has them.": has_no_weights,
        "it needs code from its folder, which is not run, because code of a checkpoint can do "
        "anything on your machine. Use a model of a family in transformers.": (
            "trust_remote_code" in error
        ),
        "it is made of two models, an encoder and a decoder. Save the encoder alone with "
        "model.encoder.save_pretrained(folder), and the tokenizer in the same folder.": (
            "EncoderDecoderConfig" in error
        ),
        "it has no embeddings of tokens, as models of text have. Use a language model or a text "
        "encoder with words or pieces of words.": "num_embeddings" in error
        or "get_input_embeddings" in error,
        "its weights are quantised, and cannot be read here. Use those that were not quantised.": (
            "quantization_config" in read_json(folder / CONFIG)
        ),
        "it has no fast tokenizer, which tells which tokens belong to which word. Save one in the "
        "folder, as tokenizer.json, or use a model that has one.": (
            "backend_tokenizer" in error or "no vocabulary" in error
        ),
    }
    return next((sentence for sentence, applies in refusals.items() if applies), "")


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
