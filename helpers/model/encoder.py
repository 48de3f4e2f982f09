"""Load an encoder so that it gives attention maps, and know exactly which weights it has.

Code comes from transformers itself and never from a checkpoint.  Nothing here knows a layer
count, a head count or the name of a special token: they are read off the model.

Read the weights of a checkpoint into a model that returns its attention maps.

Only safetensors are read, and no code of a checkpoint is run.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from tokenizers import Encoding
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from helpers.errors import ModelError
from helpers.model.checkpoint import DEFAULT, WAYS_OUT, model_folder, slug, weights_identity

Device = Literal["auto", "cpu", "cuda", "mps"]
VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model")


@dataclass(frozen=True)
class Encoder:
    """A model in evaluation mode with its tokenizer and its identity.

    ``identity`` goes into every store made with this model: name, revision or weights SHA-256,
    layers, heads, and the seed of a random initialisation.  ``objective`` is the training
    objective whose gradient section 3.2 uses.
    """

    name: str
    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    identity: dict[str, Any]
    objective: Objective
    dtype: DType = "float32"

    @property
    def layers(self) -> int:
        """Number of layers that return attention maps."""
        return self.identity["layers"]

    @property
    def heads(self) -> int:
        """Number of attention heads in each layer."""
        return self.identity["heads"]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def slug(self) -> str:
        """The model's name as a folder name."""
        return slug(self.name, random_seed=self.identity["random_init"])

    @cached_property
    def tokenizer_sha256(self) -> str:
        """SHA-256 of the tokenizer's full definition (vocabulary, normaliser, post-processor)."""
        definition = self.tokenizer.backend_tokenizer.to_str()
        return hashlib.sha256(definition.encode()).hexdigest()

    @cached_property
    def special_tokens(self) -> dict[str, str | None]:
        """The tokens that play the parts of [CLS] and [SEP]; None where the model has none."""
        parts = {"cls": self.tokenizer.cls_token, "sep": self.tokenizer.sep_token}
        used = {self.tokenizer.convert_ids_to_tokens(token_id) for token_id in self.special_ids}
        return {part: token if token in used else None for part, token in parts.items()}

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of the tokens that the tokenizer puts around and between two texts."""
        ids, special = self._pair.ids, self._pair.special_tokens_mask
        return frozenset(token_id for token_id, mask in zip(ids, special, strict=True) if mask)

    @cached_property
    def takes_token_types(self) -> bool:
        """Whether the two texts of a pair are told apart by token type ids.

        The tokenizer has the say, as it has in transformers; the model must know two types.
        """
        return (
            "token_type_ids" in self.tokenizer.model_input_names
            and (getattr(self.model.config, "type_vocab_size", 0) or 0) > 1
            and any(self._pair.type_ids)
        )

    @cached_property
    def max_length(self) -> int:
        """The longest input in tokens, special tokens included.

        The least of what the tokenizer says, what the configuration says, and the positions in
        the table, whose first rows RoBERTa and its kin leave to padding.
        """
        limits = [self.tokenizer.model_max_length]
        limits.append(getattr(self.model.config, "max_position_embeddings", None))
        for path, module in self.model.named_modules():
            if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                reserved = 0 if module.padding_idx is None else module.padding_idx + 1
                limits.append(module.num_embeddings - reserved)
        return min(limit for limit in limits if limit)

    def encode_words(self, words: Sequence[str]) -> Encoding:
        """Tokenize words one by one, with the special tokens of a single text around them.

        ``encoding.word_ids`` says which word each token belongs to.
        """
        marked = [self._word_prefix + word for word in words]
        return self.tokenizer.backend_tokenizer.encode(marked, is_pretokenized=True)

    @cached_property
    def _word_prefix(self) -> str:
        """What a word needs before it to be tokenized as within a sentence.

        Byte-level vocabularies mark a word by the space before it: there it is that space.
        """
        encode, plain = self.tokenizer.backend_tokenizer.encode, {"add_special_tokens": False}
        apart = encode(["a", "a"], is_pretokenized=True, **plain)
        return "" if apart.tokens == encode("a a", **plain).tokens else " "

    @cached_property
    def _pair(self) -> Encoding:
        return self.tokenizer.backend_tokenizer.encode("a", "b")


def load(
    name: str = DEFAULT,
    *,
    revision: str | None = None,
    device: Device = "auto",
    dtype: DType = "float32",
    random_init: int | None = None,
) -> Encoder:
    """Load a model that returns its attention maps.

    ``name`` is ``minilm`` (the embedded default, its SHA-256 verified every time), a local
    folder, or a hub name (with ``revision``).  ``random_init`` is the seed of the control of
    section 5: embeddings kept, every other weight drawn anew by the model's own scheme.

    Raises:
        ModelError: the model is unknown, has no safetensors weights, no fast tokenizer, or no
            attention maps, or its vocabulary does not fit its weights.
    """
    target = _device(device)
    folder = model_folder(name, revision)
    with _quiet(), _explained(name):
        tokenizer = _tokenizer(name, folder)
        model, objective = read_model(name, folder, dtype)
        _check_vocabulary(name, model, tokenizer)
        if random_init is not None:
            model = reinitialised(model, seed=random_init)
        model = model.to(target).eval().requires_grad_(False)
        layers, heads = geometry(name, model, tokenizer)
    if objective == "masked-lm" and tokenizer.mask_token_id is None:
        objective = "contrastive"
    identity = {
        "name": slug(name) if Path(name).expanduser().is_dir() else name,
        **weights_identity(name, folder),
        "layers": layers,
        "heads": heads,
        "random_init": random_init,
    }
    return Encoder(name, model, tokenizer, identity, objective, dtype)


def _tokenizer(name: str, folder: Path) -> PreTrainedTokenizerFast:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise ModelError(
            f"model {name!r}: its tokenizer has no fast version, which aligns tokens to words; "
            "save one beside the weights as tokenizer.json"
        )
    if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        # transformers makes up a tokenizer without words then.
        raise ModelError(
            f"model {name!r}: there is no tokenizer (none of {', '.join(VOCABULARIES)}); save the "
            "model's own with tokenizer.save_pretrained(folder)"
        )
    # A paragraph about BERT can contain the letters "[SEP]"; they are text there.
    tokenizer.split_special_tokens = True
    tokenizer.backend_tokenizer.encode_special_tokens = True
    # Some files bring truncation and padding along; examples are cut and padded elsewhere.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _check_vocabulary(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    rows = model.get_input_embeddings().num_embeddings
    entries = max(tokenizer.get_vocab().values()) + 1
    if entries > rows:
        raise ModelError(
            f"model {name!r}: the tokenizer has {entries} entries but the weights have {rows} "
            "embeddings; take tokenizer and weights of the same model"
        )


def _device(device: Device) -> torch.device:
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        return torch.device(next(kind for kind, there in available.items() if there))
    if not available.get(device.partition(":")[0]):
        raise ModelError(f"device {device!r} is not available here; use --device cpu or auto")
    return torch.device(device)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting on unused heads, which is what is wanted here."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.enable_progress_bar()


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn a loading failure into one line with the ways out."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # a broken checkpoint makes the library fail anywhere
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ModelError(
            f"model {name!r}: cannot be loaded ({type(error).__name__}: {reason[:300]}); {WAYS_OUT}"
        ) from error


Objective = Literal["masked-lm", "contrastive", "next-token"]
DType = Literal["float32", "float16", "bfloat16"]
PADDING_TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def read_model(name: str, folder: Path, dtype: DType) -> tuple[PreTrainedModel, Objective]:
    """Load the model, with its language-modelling head if the checkpoint has a trained one.

    The objective is what that head was trained for; ``contrastive`` where there is none.

    Raises:
        ModelError: weights of the encoder are not there, or have other sizes than it.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    auto, objective = _head_class(config)
    model, report = auto.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, dtype),
        attn_implementation="eager",
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # they are in the report, and refused below
        output_loading_info=True,
    )
    missing = set(report["missing_keys"])
    _check_weights(name, model, missing, report["mismatched_keys"])
    if config.is_encoder_decoder:
        return model.get_encoder(), objective
    if missing:
        # A head that transformers has just drawn at random was never trained: leave it off.
        return model.base_model, "contrastive"
    return model, objective


def reinitialised(model: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """Return a copy with the embeddings kept and all other weights drawn anew (section 5).

    Kept are the lookup tables (of words, positions and segments) and, with its normalisation,
    the module that transformers calls ``embeddings``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(model.config)
    trained = dict(model.named_modules())
    for path, module in fresh.named_modules():
        if isinstance(module, nn.Embedding) or path.split(".")[-1] == "embeddings":
            module.load_state_dict(trained[path].state_dict())
    fresh.tie_weights()
    return fresh.to(model.dtype).train(model.training)


def geometry(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> tuple[int, int]:
    """Return (layers, heads) as the model shows them on a real input.

    Raises:
        ModelError: there is not one full map for each layer and head, or padding changes it.
    """
    tokens = tokenizer("a b c", return_tensors="pt", return_attention_mask=True).to(model.device)
    known = inspect.signature(model.forward).parameters
    inputs = {key: value for key, value in tokens.items() if key in known}
    maps = _maps(model, inputs)
    shapes = {None if layer is None else tuple(layer.shape[1:]) for layer in maps}
    n = tokens["input_ids"].shape[1]
    layers = getattr(model.config, "num_hidden_layers", len(maps))
    if len(shapes) != 1 or None in shapes or maps[0].shape[2:] != (n, n) or len(maps) != layers:
        raise ModelError(
            f"model {name!r} ({model.config.model_type}): gives no (heads, tokens, tokens) map for "
            "each layer; it takes a model with full softmax attention throughout, such as BERT"
        )
    padding = {"input_ids": tokenizer.pad_token_id or 0}
    longer = {key: F.pad(value, (0, n), value=padding.get(key, 0)) for key, value in inputs.items()}
    for alone, padded in zip(maps, _maps(model, longer), strict=True):
        if (alone - padded[..., :n, :n]).abs().max() > PADDING_TOLERANCE[alone.dtype]:
            raise ModelError(
                f"model {name!r} ({model.config.model_type}): its maps change with padding, so "
                "they would depend on the batch; it takes a model that masks it, such as BERT"
            )
    return len(maps), maps[0].shape[1]


@torch.inference_mode()
def _maps(model: PreTrainedModel, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    output = model(**inputs, output_attentions=True)
    return getattr(output, "attentions", None) or ()


def _head_class(config: PretrainedConfig) -> tuple[type, Objective]:
    """Return the auto class to load with, and the objective if its head proves to be trained."""
    if not config.is_encoder_decoder:
        if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            return AutoModelForMaskedLM, "masked-lm"
        if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            return AutoModelForCausalLM, "next-token"
    return AutoModel, "contrastive"


def _check_weights(
    name: str, model: PreTrainedModel, missing: Iterable[str], mismatched: Collection[tuple]
) -> None:
    """Refuse a checkpoint that lacks weights of the encoder itself, or has other sizes."""
    if mismatched:
        key, found, expected = min(mismatched)
        raise ModelError(
            f"model {name!r}: the weights of {key} are {list(found)}, config.json makes them "
            f"{list(expected)}; take weights and configuration of the same model"
        )
    inner = {key for key, _ in model.base_model.named_parameters()}
    prefix = f"{model.base_model_prefix}."
    body = sorted(key for key in missing if key.removeprefix(prefix) in inner)
    # Sentence encoders leave the pooler out: no map depends on it.
    body = [key for key in body if "pooler." not in key]
    if body:
        raise ModelError(
            f"model {name!r}: the checkpoint has no weights for {body[0]} ({len(body)} missing); "
            "is it complete, and of the architecture that config.json names?"
        )
