"""A tiny model with random weights of every family that is tested, and what works with it.

`ZOO` has a builder for each family.  `matrix` says what works with each, or that it is refused.
``python scripts/families.py`` writes the tables of the documentation from it.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
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
TWO_SIDES = {  # encoder and decoder
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 96,
}
T5_SIZES = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 16,
}
PAGES = ("book/own-model.md", "helpers/model/README.md")
AMINO_ACIDS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
ENCODER = "encoder"
ONE_SIDE = "encoder of an encoder-decoder"
DECODER = "decoder"


class Family(NamedTuple):
    """A family: its name, what it is, how a tiny model of it is built, and how it is refused."""

    name: str
    what: str
    build: Callable[[], Built]
    refusal: str = ""  # a part of the message, empty if the model is read


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


# Models


def model_of(
    name: str,
    what: str,
    model_class: str,
    tokenizer: Callable[[], PreTrainedTokenizerBase],
    *,
    refusal: str = "",
    **settings: Any,
) -> Family:
    """Describe a family by a class of transformers; the vocabulary has its tokenizer's size."""

    def build() -> Built:
        built_tokenizer = tokenizer()
        built_class = getattr(hf, model_class)
        config = built_class.config_class(vocab_size=len(built_tokenizer), **settings)
        return built_class(config), built_tokenizer

    return Family(name, what, build, refusal)


def with_image(name: str, model_class: str, *, text: dict[str, Any], **settings: Any) -> Family:
    """Describe a family of models of texts and images, whose text part is a decoder."""

    def build() -> Built:
        tokenizer = begun_byte_pairs()
        text_config = {"vocab_size": len(tokenizer), **GROUPED, **text}
        built_class = getattr(hf, model_class)
        config = built_class.config_class(text_config=text_config, vision_config=VISION, **settings)
        return built_class(config), tokenizer

    return Family(name, DECODER, build)


def hybrid(name: str, model_class: str, settings: dict[str, Any]) -> Family:
    """Describe a family of models of which only the second layer has attention."""
    settings = {**GROUPED, "pad_token_id": 0, **settings}
    if "layers_block_type" in settings:  # which gives the number of layers, or divides the heads
        settings = {name: settings[name] for name in settings if name != "head_dim"}
    return model_of(name, DECODER, model_class, plain_byte_pairs, **settings)


NO_MAPS = "no (heads, tokens, tokens) map"
GPT_SIZES = {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 96}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
SHARED_EXPERT = {**EXPERTS, "shared_expert_intermediate_size": 16}
LOCAL_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
SECOND_OF_TWO = {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4}
MAMBA = {
    "mamba_n_heads": 4,
    "mamba_d_head": 12,
    "mamba_n_groups": 1,
    "mamba_d_state": 4,
    "mamba_chunk_size": 8,
}
HYBRIDS = {
    "LFM2": ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    "LFM2-MoE": (
        "Lfm2MoeForCausalLM",
        {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1, **EXPERTS},
    ),
    "Qwen3-Next": ("Qwen3NextForCausalLM", {**DELTA, **SHARED_EXPERT}),
    "Qwen3.5": ("Qwen3_5ForCausalLM", DELTA),
    "Qwen3.5-MoE": ("Qwen3_5MoeForCausalLM", {**DELTA, **SHARED_EXPERT}),
    "Olmo hybrid": ("OlmoHybridForCausalLM", DELTA),
    "MiniMax": (
        "MiniMaxForCausalLM",
        {"layer_types": DELTA["layer_types"], "block_size": 8, **LOCAL_EXPERTS},
    ),
    "Jamba": (
        "JambaForCausalLM",
        {**SECOND_OF_TWO, "mamba_dt_rank": 4, "num_experts": 2, "num_experts_per_tok": 1},
    ),
    "Bamba": ("BambaForCausalLM", {**MAMBA, "attn_layer_indices": [1]}),
    "Granite hybrid": (
        "GraniteMoeHybridForCausalLM",
        {
            **MAMBA,
            **LOCAL_EXPERTS,
            "layer_types": DELTA["layer_types"],
            "shared_intermediate_size": 16,
        },
    ),
    "Nemotron-H": (
        "NemotronHForCausalLM",
        {
            "layers_block_type": ["mlp", "full_attention", "linear_attention"],
            "mamba_num_heads": 4,
            "mamba_head_dim": 12,
            "ssm_state_size": 4,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "Zamba2": (
        "Zamba2ForCausalLM",
        {
            "layers_block_type": ["linear_attention", "hybrid"],
            "num_key_value_heads": 4,
            "mamba_d_state": 4,
            "mamba_ngroups": 1,
            "n_mamba_heads": 4,
            "chunk_size": 8,
        },
    ),
    "Recurrent Gemma": (
        "RecurrentGemmaForCausalLM",
        {"block_types": ["recurrent", "attention"], "attention_window_size": 8, "lru_width": 24},
    ),
    "Kimi Linear": (
        "KimiLinearForCausalLM",
        {
            "layer_types": DELTA["layer_types"],
            "num_key_value_heads": 4,
            "kv_lora_rank": 8,
            "q_lora_rank": None,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
            "num_experts": 2,
            "num_experts_per_token": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 2,
            "linear_attn_config": {"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4},
        },
    ),
}
XLM_SIZES = {"emb_dim": 24, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 96}
ZOO = [
    Family("BERT", ENCODER, tiny_models.bert),
    Family("RoBERTa", ENCODER, tiny_models.roberta),
    Family("XLM-R", ENCODER, tiny_models.xlm_roberta),
    Family("DistilBERT", ENCODER, tiny_models.distilbert),
    Family("ALBERT", ENCODER, tiny_models.albert),
    Family("ELECTRA", ENCODER, tiny_models.electra),
    Family("MPNet", ENCODER, tiny_models.mpnet),
    Family("DeBERTa", ENCODER, tiny_models.deberta),
    Family("DeBERTa-v2 and v3", ENCODER, tiny_models.deberta_v2),
    Family("ModernBERT", ENCODER, tiny_models.modernbert),
    model_of("CamemBERT", ENCODER, "CamembertForMaskedLM", byte_pairs, **SIZES),
    model_of("EuroBERT", ENCODER, "EuroBertForMaskedLM", byte_pairs, pad_token_id=1, **SIZES),
    model_of("NomicBERT", ENCODER, "NomicBertForMaskedLM", word_pieces, **SIZES),
    model_of("Jina v3", ENCODER, "JinaEmbeddingsV3ForMaskedLM", byte_pairs, **SIZES),
    model_of("RoFormer", ENCODER, "RoFormerForMaskedLM", word_pieces, embedding_size=24, **SIZES),
    model_of("RemBERT", ENCODER, "RemBertForMaskedLM", word_pieces, **SIZES),
    model_of(
        "MobileBERT",
        ENCODER,
        "MobileBertForMaskedLM",
        word_pieces,
        embedding_size=16,
        intra_bottleneck_size=16,
        num_feedforward_networks=2,
        **SIZES,
    ),
    model_of("LUKE", ENCODER, "LukeForMaskedLM", byte_pairs, entity_vocab_size=8, **SIZES),
    model_of("LayoutLM", ENCODER, "LayoutLMForMaskedLM", word_pieces, **SIZES),
    model_of("BertGeneration", ENCODER, "BertGenerationEncoder", word_pieces, **SIZES),
    model_of(
        "BigBird (original_full)",
        ENCODER,
        "BigBirdForMaskedLM",
        word_pieces,
        attention_type="original_full",
        **SIZES,
    ),
    model_of("XLM (with tokenizer.json)", ENCODER, "XLMWithLMHeadModel", word_pieces, **XLM_SIZES),
    model_of(
        "FlauBERT (with tokenizer.json)",
        ENCODER,
        "FlaubertWithLMHeadModel",
        word_pieces,
        **XLM_SIZES,
    ),
    model_of(
        "X-MOD (with default_language)",
        ENCODER,
        "XmodForMaskedLM",
        byte_pairs,
        languages=["en_XX", "fr_XX"],
        default_language="en_XX",
        **SIZES,
    ),
    model_of(
        "ESM",
        ENCODER,
        "EsmForMaskedLM",
        amino_acids,
        pad_token_id=1,
        mask_token_id=32,
        position_embedding_type="rotary",
        **SIZES,
    ),
    model_of(
        "XLNet",
        ENCODER,
        "XLNetLMHeadModel",
        words_before_special_tokens,
        d_model=24,
        n_layer=2,
        n_head=4,
        d_inner=32,
    ),
    Family("T5", ONE_SIDE, tiny_models.t5),
    model_of("T5 without a decoder", ENCODER, "T5EncoderModel", pieces, **T5_SIZES),
    model_of("mT5", ONE_SIDE, "MT5ForConditionalGeneration", pieces, **T5_SIZES),
    model_of("UMT5", ONE_SIDE, "UMT5ForConditionalGeneration", pieces, **T5_SIZES),
    model_of(
        "ByT5",
        ONE_SIDE,
        "T5ForConditionalGeneration",
        hf.ByT5Tokenizer,
        refusal="no fast tokenizer",
        **T5_SIZES,
    ),
    model_of("BART", ONE_SIDE, "BartForConditionalGeneration", byte_pairs, **TWO_SIDES),
    model_of("mBART", ONE_SIDE, "MBartForConditionalGeneration", byte_pairs, **TWO_SIDES),
    model_of(
        "M2M100 and NLLB (with tokenizer.json)",
        ONE_SIDE,
        "M2M100ForConditionalGeneration",
        byte_pairs,
        **TWO_SIDES,
    ),
    model_of("Pegasus", ONE_SIDE, "PegasusForConditionalGeneration", pieces, **TWO_SIDES),
    model_of(
        "Marian (with tokenizer.json)",
        ONE_SIDE,
        "MarianMTModel",
        pieces,
        pad_token_id=0,
        decoder_start_token_id=0,
        **TWO_SIDES,
    ),
    with_image("CLIP (text part)", "CLIPModel", text={}),
    Family("GPT-2", DECODER, tiny_models.gpt2),
    model_of("Llama", DECODER, "LlamaForCausalLM", begun_byte_pairs, **GROUPED),
    model_of("Qwen2", DECODER, "Qwen2ForCausalLM", plain_byte_pairs, **GROUPED),
    model_of("Qwen3", DECODER, "Qwen3ForCausalLM", plain_byte_pairs, **GROUPED),
    model_of("Qwen3-MoE", DECODER, "Qwen3MoeForCausalLM", plain_byte_pairs, **EXPERTS, **GROUPED),
    model_of(
        "Mistral", DECODER, "MistralForCausalLM", begun_byte_pairs, sliding_window=8, **GROUPED
    ),
    model_of(
        "Gemma 2", DECODER, "Gemma2ForCausalLM", begun_byte_pairs, sliding_window=8, **GROUPED
    ),
    model_of(
        "Gemma 3", DECODER, "Gemma3ForCausalLM", begun_byte_pairs, sliding_window=8, **GROUPED
    ),
    with_image(
        "Gemma 3 with images (text part)",
        "Gemma3ForConditionalGeneration",
        mm_tokens_per_image=4,
        text={"sliding_window": 8},
    ),
    model_of(
        "EmbeddingGemma",
        ENCODER,
        "Gemma3TextModel",
        begun_byte_pairs,
        sliding_window=8,
        use_bidirectional_attention=True,
        **GROUPED,
    ),
    model_of("GPT-NeoX", DECODER, "GPTNeoXForCausalLM", plain_byte_pairs, **SIZES),
    model_of(
        "GPT-J",
        DECODER,
        "GPTJForCausalLM",
        plain_byte_pairs,
        rotary_dim=4,
        **{**GPT_SIZES, "n_embd": 32},
    ),
    model_of(
        "OPT",
        DECODER,
        "OPTForCausalLM",
        begun_byte_pairs,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=32,
        max_position_embeddings=96,
        word_embed_proj_dim=24,
    ),
    model_of(
        "BLOOM", DECODER, "BloomForCausalLM", plain_byte_pairs, hidden_size=24, n_layer=2, n_head=4
    ),
    model_of("Falcon", DECODER, "FalconForCausalLM", plain_byte_pairs, **SIZES),
    model_of("Phi-3", DECODER, "Phi3ForCausalLM", plain_byte_pairs, pad_token_id=0, **SIZES),
    model_of("GPTBigCode", DECODER, "GPTBigCodeForCausalLM", plain_byte_pairs, **GPT_SIZES),
    model_of(
        "DeepSeek-V3",
        DECODER,
        "DeepseekV3ForCausalLM",
        begun_byte_pairs,
        num_key_value_heads=4,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=16,
        **SIZES,
    ),
    model_of(
        "ModernBERT-decoder",
        DECODER,
        "ModernBertDecoderForCausalLM",
        byte_pairs,
        pad_token_id=1,
        **SIZES,
    ),
    model_of(
        "BERT as a decoder", DECODER, "BertLMHeadModel", word_pieces, is_decoder=True, **SIZES
    ),
    model_of(
        "GPT-OSS",
        DECODER,
        "GptOssForCausalLM",
        plain_byte_pairs,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=8,
        **GROUPED,
    ),
    model_of("DiffLlama", DECODER, "DiffLlamaForCausalLM", plain_byte_pairs, **GROUPED),
    *(hybrid(name, *settings) for name, settings in HYBRIDS.items()),
    model_of(
        "ConvBERT",
        ENCODER,
        "ConvBertForMaskedLM",
        word_pieces,
        refusal="maps change with padding",
        embedding_size=16,
        **SIZES,
    ),
    model_of(
        "BigBird (block_sparse)",
        ENCODER,
        "BigBirdForMaskedLM",
        word_pieces,
        refusal=NO_MAPS,
        block_size=8,
        **SIZES,
    ),
    model_of(
        "Longformer",
        ENCODER,
        "LongformerForMaskedLM",
        byte_pairs,
        refusal=NO_MAPS,
        attention_window=8,
        **SIZES,
    ),
    model_of(
        "LED",
        ONE_SIDE,
        "LEDForConditionalGeneration",
        byte_pairs,
        refusal=NO_MAPS,
        attention_window=8,
        d_model=24,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    ),
    Family("Mamba", DECODER, tiny_models.mamba, NO_MAPS),
    model_of(
        "FNet",
        ENCODER,
        "FNetForMaskedLM",
        word_pieces,
        refusal=NO_MAPS,
        hidden_size=24,
        num_hidden_layers=2,
        intermediate_size=32,
    ),
    model_of(
        "Funnel",
        ENCODER,
        "FunnelForMaskedLM",
        word_pieces,
        refusal=NO_MAPS,
        block_sizes=[1, 1],
        d_model=24,
        n_head=4,
        d_head=6,
        d_inner=32,
    ),
    model_of(
        "SqueezeBERT",
        ENCODER,
        "SqueezeBertForMaskedLM",
        word_pieces,
        refusal="not attention weights",
        embedding_size=24,
        **SIZES,
    ),
    Family(
        "CANINE",
        ENCODER,
        lambda: (hf.CanineModel(hf.CanineConfig(**SIZES)), hf.CanineTokenizer()),
        "no embeddings of tokens",
    ),
    Family(
        "ViT",
        "images",
        lambda: (hf.ViTModel(hf.ViTConfig(**VISION)), word_pieces()),
        "no embeddings of tokens",
    ),
    model_of(
        "Whisper",
        "sound",
        "WhisperForConditionalGeneration",
        plain_byte_pairs,
        refusal="no embeddings of tokens",
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
        **{name: size for name, size in TWO_SIDES.items() if name != "max_position_embeddings"},
    ),
]


def save(family: Family, folder: Path) -> Path:
    """Save a tiny model of a family, with weights that are large enough for uneven maps."""
    torch.manual_seed(0)
    model, tokenizer = family.build()
    return tiny_models.save(folder, tiny_models.spread(model, factor=6.0), tokenizer)


def save_and_load(folder: Path) -> dict[str, Model | ModelError]:
    """Load a tiny model of each family from a folder inside, or keep the error that refuses it."""
    loaded: dict[str, Model | ModelError] = {}
    for number, family in enumerate(ZOO):
        path = save(family, folder / str(number))
        try:
            loaded[family.name] = load_model(str(path), device="cpu")
        except ModelError as error:
            loaded[family.name] = error
    return loaded


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
