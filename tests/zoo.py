"""A tiny model with random weights of every family that is tested, and what works with it.

`ZOO` has a builder for each family.  `matrix` says what works with each, or that it is refused.
``python scripts/families.py`` writes the tables of the documentation from it.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
import tiny_models
import torch
import transformers as hf
from tokenizers import processors
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from beyond.papers.left_out import CHECKS, left_out
from helpers.errors import ModelError
from helpers.model.loading import Model, load_model
from helpers.model.sites import is_hybrid

Built = tuple[PreTrainedModel, PreTrainedTokenizerBase]
SIZES = {**tiny_models.SIZES, "num_hidden_layers": 2, "max_position_embeddings": 96}
PAGES = ("book/own-model.md", "helpers/model/README.md")
AMINO_ACIDS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
ENCODER = "encoder"
ONE_SIDE = "encoder of an encoder-decoder"
DECODER = "decoder"
FOLDER = tempfile.TemporaryDirectory(prefix="zoo-")  # of the models, as long as the tests run


# Tokenizers


def word_pieces() -> PreTrainedTokenizerBase:
    return hf.BertTokenizer(vocab=tiny_models.wordpiece(tiny_models.BERT_SPECIALS))


def byte_pairs() -> PreTrainedTokenizerBase:
    return hf.RobertaTokenizer(**tiny_models.byte_level(tiny_models.ROBERTA_SPECIALS))


def pieces() -> PreTrainedTokenizerBase:
    """Pieces of words, with ``</s>`` after each text."""
    vocabulary = tiny_models.unigram(["<pad>", "</s>", "<unk>"], "<unk>")
    return hf.T5Tokenizer(vocab=vocabulary, extra_ids=0)


def plain_byte_pairs() -> PreTrainedTokenizerBase:
    return hf.GPT2Tokenizer(**tiny_models.byte_level(["<|endoftext|>"]))


def begun_byte_pairs() -> PreTrainedTokenizerBase:
    """Pairs of bytes, with a token that begins every text."""
    bos = "<|endoftext|>"
    tokenizer = plain_byte_pairs()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, tokenizer.bos_token_id)],
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, bos_token=bos, eos_token=bos
    )


def words_before_special_tokens() -> PreTrainedTokenizerBase:
    """The order of XLNet: special tokens come last."""
    tokenizer = word_pieces()
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in ("[SEP]", "[CLS]")}
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP] [CLS]:2",
        pair="$A [SEP] $B:1 [SEP]:1 [CLS]:2",
        special_tokens=list(ids.items()),
    )
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("cls", "sep", "pad", "unk", "mask")}
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **names)


def amino_acids() -> PreTrainedTokenizerBase:
    tokens = ["<cls>", "<pad>", "<eos>", "<unk>", *AMINO_ACIDS, "<null_1>", "<mask>"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_text("\n".join(tokens))
        return hf.EsmTokenizer(str(path))


# Settings besides `SIZES`

GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
WINDOW = {**GROUPED, "sliding_window": 8}
VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 32, "patch_size": 16,
}  # fmt: skip
T5 = {"d_kv": 6, "d_ff": 32, "num_decoder_layers": 1}
BART = {
    "decoder_layers": 1, "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
LOCAL_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
LAYER_TYPES = {"layer_types": ["linear_attention", "full_attention"]}
HYBRID = {**GROUPED, "pad_token_id": 0}
DELTA = {
    **HYBRID, **LAYER_TYPES, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
SHARED_EXPERT = {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 16}
MAMBA = {
    **HYBRID, "mamba_n_heads": 4, "mamba_d_head": 12, "mamba_n_groups": 1, "mamba_d_state": 4,
    "mamba_chunk_size": 8,
}  # fmt: skip
NO_MAPS = "no (heads, tokens, tokens) map"
NO_EMBEDDINGS = "no embeddings of tokens"


class Family(NamedTuple):
    """A family: its name, what it is, its class, its tokenizer, settings, and how it is refused.

    A size that is None is left out.  A class may be a function that builds model and tokenizer.
    """

    name: str
    what: str
    model_class: str | Callable[[], Built]
    tokenizer: Callable[[], PreTrainedTokenizerBase] = word_pieces
    settings: Mapping[str, Any] = MappingProxyType({})
    refusal: str = ""  # a part of the message, empty if the model is read

    def build(self) -> Built:
        """Build a tiny model; the vocabulary has the size of its tokenizer."""
        if callable(self.model_class):
            return self.model_class()
        tokenizer = self.tokenizer()
        built_class = getattr(hf, self.model_class)
        settings = {"vocab_size": len(tokenizer), **SIZES, **self.settings}
        sizes = {name: settings[name] for name in settings if settings[name] is not NONE}
        if "vision_config" in sizes:  # the text part has the sizes
            images = {name: sizes.pop(name) for name in IMAGE_SETTINGS & sizes.keys()}
            sizes = {"text_config": sizes, **images}
        return built_class(built_class.config_class(**sizes)), tokenizer


NONE = object()  # the value of a setting that a configuration does not take
IMAGE_SETTINGS = {"vision_config", "mm_tokens_per_image"}
NO_POSITIONS = {"max_position_embeddings": NONE}
BLOCK_TYPES = {**HYBRID, "head_dim": NONE}
HYBRIDS = [
    ("LFM2", "Lfm2ForCausalLM", {**HYBRID, "layer_types": ["conv", "full_attention"]}),
    ("LFM2-MoE", "Lfm2MoeForCausalLM", {**HYBRID, **EXPERTS, "num_dense_layers": 1,
     "layer_types": ["conv", "full_attention"]}),
    ("Qwen3-Next", "Qwen3NextForCausalLM", SHARED_EXPERT),
    ("Qwen3.5", "Qwen3_5ForCausalLM", DELTA),
    ("Qwen3.5-MoE", "Qwen3_5MoeForCausalLM", SHARED_EXPERT),
    ("Olmo hybrid", "OlmoHybridForCausalLM", DELTA),
    ("MiniMax", "MiniMaxForCausalLM", {**HYBRID, **LAYER_TYPES, **LOCAL_EXPERTS, "block_size": 8}),
    ("Jamba", "JambaForCausalLM", {**HYBRID, "attn_layer_period": 2, "attn_layer_offset": 1,
     "mamba_d_state": 4, "mamba_dt_rank": 4, "num_experts": 2, "num_experts_per_tok": 1}),
    ("Bamba", "BambaForCausalLM", {**MAMBA, "attn_layer_indices": [1]}),
    ("Granite hybrid", "GraniteMoeHybridForCausalLM", {**MAMBA, **LOCAL_EXPERTS, **LAYER_TYPES,
     "shared_intermediate_size": 16}),
    ("Nemotron-H", "NemotronHForCausalLM", {**BLOCK_TYPES, "mamba_num_heads": 4,
     "layers_block_type": ["mlp", "full_attention", "linear_attention"], "mamba_head_dim": 12,
     "ssm_state_size": 4, "n_groups": 1, "chunk_size": 8}),
    ("Zamba2", "Zamba2ForCausalLM", {**BLOCK_TYPES, "num_key_value_heads": 4, "mamba_d_state": 4,
     "layers_block_type": ["linear_attention", "hybrid"], "mamba_ngroups": 1, "n_mamba_heads": 4,
     "chunk_size": 8}),
    ("Recurrent Gemma", "RecurrentGemmaForCausalLM", {**HYBRID, "attention_window_size": 8,
     "block_types": ["recurrent", "attention"], "lru_width": 24}),
    ("Kimi Linear", "KimiLinearForCausalLM", {**HYBRID, **LAYER_TYPES, "num_key_value_heads": 4,
     "kv_lora_rank": 8, "q_lora_rank": None, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
     "v_head_dim": 8, "num_experts": 2, "num_experts_per_token": 1, "moe_intermediate_size": 16,
     "first_k_dense_replace": 2,
     "linear_attn_config": {"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4}}),
]  # fmt: skip
ROWS = [
    ("BERT", ENCODER, tiny_models.bert),
    ("RoBERTa", ENCODER, tiny_models.roberta),
    ("XLM-R", ENCODER, tiny_models.xlm_roberta),
    ("DistilBERT", ENCODER, tiny_models.distilbert),
    ("ALBERT", ENCODER, tiny_models.albert),
    ("ELECTRA", ENCODER, tiny_models.electra),
    ("MPNet", ENCODER, tiny_models.mpnet),
    ("DeBERTa", ENCODER, tiny_models.deberta),
    ("DeBERTa-v2 and v3", ENCODER, tiny_models.deberta_v2),
    ("ModernBERT", ENCODER, tiny_models.modernbert),
    ("CamemBERT", ENCODER, "CamembertForMaskedLM", byte_pairs),
    ("EuroBERT", ENCODER, "EuroBertForMaskedLM", byte_pairs, {"pad_token_id": 1}),
    ("NomicBERT", ENCODER, "NomicBertForMaskedLM"),
    ("Jina v3", ENCODER, "JinaEmbeddingsV3ForMaskedLM", byte_pairs),
    ("RoFormer", ENCODER, "RoFormerForMaskedLM", word_pieces, {"embedding_size": 24}),
    ("RemBERT", ENCODER, "RemBertForMaskedLM"),
    ("MobileBERT", ENCODER, "MobileBertForMaskedLM", word_pieces, {"embedding_size": 16,
     "intra_bottleneck_size": 16, "num_feedforward_networks": 2}),
    ("LUKE", ENCODER, "LukeForMaskedLM", byte_pairs, {"entity_vocab_size": 8}),
    ("LayoutLM", ENCODER, "LayoutLMForMaskedLM"),
    ("BertGeneration", ENCODER, "BertGenerationEncoder"),
    ("BigBird (original_full)", ENCODER, "BigBirdForMaskedLM", word_pieces,
     {"attention_type": "original_full"}),
    ("XLM (with tokenizer.json)", ENCODER, "XLMWithLMHeadModel"),
    ("FlauBERT (with tokenizer.json)", ENCODER, "FlaubertWithLMHeadModel"),
    ("X-MOD (with default_language)", ENCODER, "XmodForMaskedLM", byte_pairs,
     {"languages": ["en_XX", "fr_XX"], "default_language": "en_XX"}),
    ("ESM", ENCODER, "EsmForMaskedLM", amino_acids,
     {"pad_token_id": 1, "mask_token_id": 32, "position_embedding_type": "rotary"}),
    ("XLNet", ENCODER, "XLNetLMHeadModel", words_before_special_tokens,
     {**NO_POSITIONS, "d_head": 6, "d_inner": 32}),
    ("T5", ONE_SIDE, tiny_models.t5),
    ("T5 without a decoder", ENCODER, "T5EncoderModel", pieces, T5),
    ("mT5", ONE_SIDE, "MT5ForConditionalGeneration", pieces, T5),
    ("UMT5", ONE_SIDE, "UMT5ForConditionalGeneration", pieces, T5),
    ("ByT5", ONE_SIDE, "T5ForConditionalGeneration", hf.ByT5Tokenizer, T5, "no fast tokenizer"),
    ("BART", ONE_SIDE, "BartForConditionalGeneration", byte_pairs, BART),
    ("mBART", ONE_SIDE, "MBartForConditionalGeneration", byte_pairs, BART),
    ("M2M100 and NLLB (with tokenizer.json)", ONE_SIDE, "M2M100ForConditionalGeneration",
     byte_pairs, BART),
    ("Pegasus", ONE_SIDE, "PegasusForConditionalGeneration", pieces, BART),
    ("Marian (with tokenizer.json)", ONE_SIDE, "MarianMTModel", pieces,
     {**BART, "pad_token_id": 0, "decoder_start_token_id": 0}),
    ("CLIP (text part)", DECODER, "CLIPModel", begun_byte_pairs,
     {**GROUPED, "vision_config": VISION}),
    ("GPT-2", DECODER, tiny_models.gpt2),
    ("Llama", DECODER, "LlamaForCausalLM", begun_byte_pairs, GROUPED),
    ("Qwen2", DECODER, "Qwen2ForCausalLM", plain_byte_pairs, GROUPED),
    ("Qwen3", DECODER, "Qwen3ForCausalLM", plain_byte_pairs, GROUPED),
    ("Qwen3-MoE", DECODER, "Qwen3MoeForCausalLM", plain_byte_pairs, {**EXPERTS, **GROUPED}),
    ("Mistral", DECODER, "MistralForCausalLM", begun_byte_pairs, WINDOW),
    ("Gemma 2", DECODER, "Gemma2ForCausalLM", begun_byte_pairs, WINDOW),
    ("Gemma 3", DECODER, "Gemma3ForCausalLM", begun_byte_pairs, WINDOW),
    ("Gemma 3 with images (text part)", DECODER, "Gemma3ForConditionalGeneration",
     begun_byte_pairs, {**WINDOW, "vision_config": VISION, "mm_tokens_per_image": 4}),
    ("EmbeddingGemma", ENCODER, "Gemma3TextModel", begun_byte_pairs,
     {**WINDOW, "use_bidirectional_attention": True}),
    ("GPT-NeoX", DECODER, "GPTNeoXForCausalLM", plain_byte_pairs),
    ("GPT-J", DECODER, "GPTJForCausalLM", plain_byte_pairs, {"hidden_size": 32, "rotary_dim": 4}),
    ("OPT", DECODER, "OPTForCausalLM", begun_byte_pairs, {"ffn_dim": 32}),
    ("BLOOM", DECODER, "BloomForCausalLM", plain_byte_pairs),
    ("Falcon", DECODER, "FalconForCausalLM", plain_byte_pairs),
    ("Phi-3", DECODER, "Phi3ForCausalLM", plain_byte_pairs, {"pad_token_id": 0}),
    ("GPTBigCode", DECODER, "GPTBigCodeForCausalLM", plain_byte_pairs),
    ("DeepSeek-V3", DECODER, "DeepseekV3ForCausalLM", begun_byte_pairs, {"num_key_value_heads": 4,
     "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
     "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 1, "n_group": 1,
     "topk_group": 1, "moe_intermediate_size": 16}),
    ("ModernBERT-decoder", DECODER, "ModernBertDecoderForCausalLM", byte_pairs,
     {"pad_token_id": 1}),
    ("BERT as a decoder", DECODER, "BertLMHeadModel", word_pieces, {"is_decoder": True}),
    ("GPT-OSS", DECODER, "GptOssForCausalLM", plain_byte_pairs, {**WINDOW, **LOCAL_EXPERTS}),
    ("DiffLlama", DECODER, "DiffLlamaForCausalLM", plain_byte_pairs, GROUPED),
    *((name, DECODER, model, plain_byte_pairs, settings) for name, model, settings in HYBRIDS),
    ("ConvBERT", ENCODER, "ConvBertForMaskedLM", word_pieces, {"embedding_size": 16},
     "maps change with padding"),
    ("BigBird (block_sparse)", ENCODER, "BigBirdForMaskedLM", word_pieces, {"block_size": 8},
     NO_MAPS),
    ("Longformer", ENCODER, "LongformerForMaskedLM", byte_pairs, {"attention_window": 8}, NO_MAPS),
    ("LED", ONE_SIDE, "LEDForConditionalGeneration", byte_pairs, {**BART, "attention_window": 8},
     NO_MAPS),
    ("Mamba", DECODER, tiny_models.mamba, word_pieces, {}, NO_MAPS),
    ("FNet", ENCODER, "FNetForMaskedLM", word_pieces, {}, NO_MAPS),
    ("Funnel", ENCODER, "FunnelForMaskedLM", word_pieces, {**NO_POSITIONS, "block_sizes": [1, 1],
     "d_head": 6, "d_inner": 32, "num_hidden_layers": NONE, "intermediate_size": NONE}, NO_MAPS),
    ("SqueezeBERT", ENCODER, "SqueezeBertForMaskedLM", word_pieces, {"embedding_size": 24},
     "not attention weights"),
    ("CANINE", ENCODER, lambda: (hf.CanineModel(hf.CanineConfig(**SIZES)), hf.CanineTokenizer()),
     word_pieces, {}, NO_EMBEDDINGS),
    ("ViT", "images", lambda: (hf.ViTModel(hf.ViTConfig(**VISION)), word_pieces()), word_pieces,
     {}, NO_EMBEDDINGS),
    ("Whisper", "sound", "WhisperForConditionalGeneration", plain_byte_pairs, {**BART,
     **NO_POSITIONS, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
     "decoder_start_token_id": 0}, NO_EMBEDDINGS),
]  # fmt: skip
ZOO = [Family(*row) for row in ROWS]

# Families that the documentation does not list, each with something of its own: layers without
# positions, other norms, a window in some layers, biases for distances, a state space.
SIX_WIDE = {**GROUPED, "head_dim": 6, "pad_token_id": 0}
MORE = [
    Family(name, DECODER, f"{name}ForCausalLM", begun_byte_pairs, SIX_WIDE)
    for name in ("SmolLM3", "Olmo3", "Cohere2", "Glm4", "Doge", "BioGpt")
] + [
    Family("Qwen3 with a window in a layer", DECODER, "Qwen3ForCausalLM", plain_byte_pairs,
           {**GROUPED, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7,
            "use_sliding_window": True}),
    Family("Falcon-H1", DECODER, "FalconH1ForCausalLM", plain_byte_pairs, {**SIX_WIDE,
           "mamba_d_ssm": 16, "mamba_n_heads": 2, "mamba_d_head": 8, "mamba_d_state": 4,
           "mamba_n_groups": 1}),
    Family("MPT", DECODER, "MptForCausalLM", plain_byte_pairs,
           {"expansion_ratio": 2, "max_seq_len": 96}),
    Family("GPT-Neo", DECODER, "GPTNeoForCausalLM", plain_byte_pairs, {"num_layers": 2,
           "num_hidden_layers": NONE, "window_size": 6,
           "attention_types": [[["global", "local"], 1]]}),
    Family("XGLM", DECODER, "XGLMForCausalLM", plain_byte_pairs, {"ffn_dim": 32}),
    Family("CTRL", DECODER, "CTRLLMHeadModel", plain_byte_pairs, {"hidden_size": 32, "dff": 32}),
    Family("Data2Vec", ENCODER, "Data2VecTextForMaskedLM"),
    Family("Splinter", ENCODER, "SplinterModel"),
    Family("RoBERTa-PreLayerNorm", ENCODER, "RobertaPreLayerNormForMaskedLM", byte_pairs),
]  # fmt: skip


def save(family: Family, folder: Path) -> Path:
    """Save a tiny model of a family, with weights that are large enough for uneven maps."""
    torch.manual_seed(0)
    model, tokenizer = family.build()
    return tiny_models.save(folder, tiny_models.spread(model, factor=6.0), tokenizer)


FAMILIES = {family.name: family for family in [*ZOO, *MORE]}


@cache
def load(name: str) -> Model | ModelError:
    """Load a tiny model of a family, once, or return the error that refuses it."""
    path = save(FAMILIES[name], Path(tempfile.mkdtemp(dir=FOLDER.name)))
    try:
        return load_model(str(path), device="cpu")
    except ModelError as error:
        return error


def save_and_load(_: Path | None = None) -> dict[str, Model | ModelError]:
    """Load a tiny model of each family of the documentation, or the error that refuses it."""
    return {family.name: load(family.name) for family in ZOO}


def matrix(loaded: Mapping[str, Model | ModelError]) -> pd.DataFrame:
    """List the measures that work with each family that is read.

    Parameters
    ----------
    loaded : mapping of str to Model or ModelError
        From `save_and_load`.

    Returns
    -------
    DataFrame
        One row per combination of answers.  Columns: ``families``, their names; then the questions.
    """
    rows = []
    for name, encoder in loaded.items():
        if isinstance(encoder, ModelError):
            continue
        reasons = left_out(encoder, *CHECKS)
        answers = {name: "no" if name in reasons else "yes" for name in CHECKS}
        is_causal = all(layer["causal"] for layer in encoder.visible)
        row = {
            "families": name,
            "a token sees": "itself and earlier tokens" if is_causal else "both sides",
            "maps (00 to 06)": _maps(encoder),
            "long texts (12)": answers["texts of up to 4,096 tokens"],
            "loss of gradients (02)": encoder.objective,
            "`--lens norm`, norms (10)": answers["norms of what heads move"],
            "removed heads (08)": answers["removal of heads"],
            "cut edges (10)": answers["edges cut"],
        }
        rows.append(row)
    table = pd.DataFrame(rows)
    questions = list(table.columns[1:])
    names = table.groupby(questions, sort=False)["families"].agg(", ".join)
    return names.reset_index()[["families", *questions]]


def _maps(encoder: Model) -> str:
    """Describe the maps of a model in a word or a few."""
    if is_hybrid(encoder.model):
        return "in the layers that have attention"
    return "yes, with a sink" if encoder.has_sink else "yes"


def refusals(loaded: Mapping[str, Model | ModelError]) -> pd.DataFrame:
    """List the families that are refused, with the message without the name of the model."""
    messages = {}
    for name, error in loaded.items():
        if isinstance(error, ModelError):
            message = re.sub(r"^model '.*?':? ", "", str(error))
            messages[name] = re.sub(r"sums to \S+,", "sums to ...,", message)
    table = pd.DataFrame(messages.items(), columns=["families", "message"])
    names = table.groupby("message", sort=False)["families"].agg(", ".join)
    return names.reset_index()[["families", "message"]]


def blocks(loaded: Mapping[str, Model | ModelError]) -> dict[str, str]:
    """Write the blocks of the pages `PAGES` in Markdown, by name."""
    table = matrix(loaded)
    names = ", ".join(table["families"])
    return {
        "families": _markdown(table),
        "refused families": _markdown(refusals(loaded)),
        "family names": textwrap.fill(names, 120, break_on_hyphens=False),
    }


def _markdown(table: pd.DataFrame) -> str:
    """Write a table in Markdown."""
    rows = [table.columns, ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
