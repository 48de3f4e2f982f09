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
    classes: str, tokenizer: Callable[[], PreTrainedTokenizerBase], **settings: Any
) -> Callable[[], Built]:
    """Make the builder of a model with a vocabulary of its tokenizer's size.

    ``classes`` names the classes of the model and of its configuration.
    """
    model_class, config_class = (getattr(hf, name) for name in classes.split())

    def build() -> Built:
        built_tokenizer = tokenizer()
        config = config_class(vocab_size=len(built_tokenizer), **settings)
        return model_class(config), built_tokenizer

    return build


def with_image(classes: str, **settings: Any) -> Callable[[], Built]:
    """Make the builder of a model of texts and images."""
    model_class, config_class = (getattr(hf, name) for name in classes.split())

    def build() -> Built:
        tokenizer = begun_byte_pairs()
        text = {"vocab_size": len(tokenizer), **GROUPED, **settings.pop("text", {})}
        config = config_class(text_config=text, vision_config=VISION, **settings)
        return model_class(config), tokenizer

    return build


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
    Family(
        "CamemBERT", ENCODER, model_of("CamembertForMaskedLM CamembertConfig", byte_pairs, **SIZES)
    ),
    Family(
        "EuroBERT",
        ENCODER,
        model_of("EuroBertForMaskedLM EuroBertConfig", byte_pairs, pad_token_id=1, **SIZES),
    ),
    Family(
        "NomicBERT", ENCODER, model_of("NomicBertForMaskedLM NomicBertConfig", word_pieces, **SIZES)
    ),
    Family(
        "Jina v3",
        ENCODER,
        model_of("JinaEmbeddingsV3ForMaskedLM JinaEmbeddingsV3Config", byte_pairs, **SIZES),
    ),
    Family(
        "RoFormer",
        ENCODER,
        model_of("RoFormerForMaskedLM RoFormerConfig", word_pieces, embedding_size=24, **SIZES),
    ),
    Family("RemBERT", ENCODER, model_of("RemBertForMaskedLM RemBertConfig", word_pieces, **SIZES)),
    Family(
        "MobileBERT",
        ENCODER,
        model_of(
            "MobileBertForMaskedLM MobileBertConfig",
            word_pieces,
            embedding_size=16,
            intra_bottleneck_size=16,
            num_feedforward_networks=2,
            **SIZES,
        ),
    ),
    Family(
        "LUKE",
        ENCODER,
        model_of("LukeForMaskedLM LukeConfig", byte_pairs, entity_vocab_size=8, **SIZES),
    ),
    Family(
        "LayoutLM", ENCODER, model_of("LayoutLMForMaskedLM LayoutLMConfig", word_pieces, **SIZES)
    ),
    Family(
        "BertGeneration",
        ENCODER,
        model_of("BertGenerationEncoder BertGenerationConfig", word_pieces, **SIZES),
    ),
    Family(
        "BigBird (original_full)",
        ENCODER,
        model_of(
            "BigBirdForMaskedLM BigBirdConfig",
            word_pieces,
            attention_type="original_full",
            **SIZES,
        ),
    ),
    Family(
        "XLM (with tokenizer.json)",
        ENCODER,
        model_of("XLMWithLMHeadModel XLMConfig", word_pieces, **XLM_SIZES),
    ),
    Family(
        "FlauBERT (with tokenizer.json)",
        ENCODER,
        model_of("FlaubertWithLMHeadModel FlaubertConfig", word_pieces, **XLM_SIZES),
    ),
    Family(
        "X-MOD (with default_language)",
        ENCODER,
        model_of(
            "XmodForMaskedLM XmodConfig",
            byte_pairs,
            languages=["en_XX", "fr_XX"],
            default_language="en_XX",
            **SIZES,
        ),
    ),
    Family(
        "ESM",
        ENCODER,
        model_of(
            "EsmForMaskedLM EsmConfig",
            amino_acids,
            pad_token_id=1,
            mask_token_id=32,
            position_embedding_type="rotary",
            **SIZES,
        ),
    ),
    Family(
        "XLNet",
        ENCODER,
        model_of(
            "XLNetLMHeadModel XLNetConfig",
            words_before_special_tokens,
            d_model=24,
            n_layer=2,
            n_head=4,
            d_inner=32,
        ),
    ),
    Family("T5", ONE_SIDE, tiny_models.t5),
    Family(
        "T5 without a decoder", ENCODER, model_of("T5EncoderModel T5Config", pieces, **T5_SIZES)
    ),
    Family("mT5", ONE_SIDE, model_of("MT5ForConditionalGeneration MT5Config", pieces, **T5_SIZES)),
    Family(
        "UMT5", ONE_SIDE, model_of("UMT5ForConditionalGeneration UMT5Config", pieces, **T5_SIZES)
    ),
    Family(
        "ByT5",
        ONE_SIDE,
        model_of("T5ForConditionalGeneration T5Config", hf.ByT5Tokenizer, **T5_SIZES),
        "no fast tokenizer",
    ),
    Family(
        "BART",
        ONE_SIDE,
        model_of("BartForConditionalGeneration BartConfig", byte_pairs, **TWO_SIDES),
    ),
    Family(
        "mBART",
        ONE_SIDE,
        model_of("MBartForConditionalGeneration MBartConfig", byte_pairs, **TWO_SIDES),
    ),
    Family(
        "M2M100 and NLLB (with tokenizer.json)",
        ONE_SIDE,
        model_of("M2M100ForConditionalGeneration M2M100Config", byte_pairs, **TWO_SIDES),
    ),
    Family(
        "Pegasus",
        ONE_SIDE,
        model_of("PegasusForConditionalGeneration PegasusConfig", pieces, **TWO_SIDES),
    ),
    Family(
        "Marian (with tokenizer.json)",
        ONE_SIDE,
        model_of(
            "MarianMTModel MarianConfig",
            pieces,
            pad_token_id=0,
            decoder_start_token_id=0,
            **TWO_SIDES,
        ),
    ),
    Family("CLIP (text part)", DECODER, with_image("CLIPModel CLIPConfig")),
    Family("GPT-2", DECODER, tiny_models.gpt2),
    Family("Llama", DECODER, model_of("LlamaForCausalLM LlamaConfig", begun_byte_pairs, **GROUPED)),
    Family("Qwen2", DECODER, model_of("Qwen2ForCausalLM Qwen2Config", plain_byte_pairs, **GROUPED)),
    Family("Qwen3", DECODER, model_of("Qwen3ForCausalLM Qwen3Config", plain_byte_pairs, **GROUPED)),
    Family(
        "Qwen3-MoE",
        DECODER,
        model_of(
            "Qwen3MoeForCausalLM Qwen3MoeConfig",
            plain_byte_pairs,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            **GROUPED,
        ),
    ),
    Family(
        "Mistral",
        DECODER,
        model_of("MistralForCausalLM MistralConfig", begun_byte_pairs, sliding_window=8, **GROUPED),
    ),
    Family(
        "Gemma 2",
        DECODER,
        model_of("Gemma2ForCausalLM Gemma2Config", begun_byte_pairs, sliding_window=8, **GROUPED),
    ),
    Family(
        "Gemma 3",
        DECODER,
        model_of(
            "Gemma3ForCausalLM Gemma3TextConfig", begun_byte_pairs, sliding_window=8, **GROUPED
        ),
    ),
    Family(
        "Gemma 3 with images (text part)",
        DECODER,
        with_image(
            "Gemma3ForConditionalGeneration Gemma3Config",
            mm_tokens_per_image=4,
            text={"sliding_window": 8},
        ),
    ),
    Family(
        "EmbeddingGemma",
        ENCODER,
        model_of(
            "Gemma3TextModel Gemma3TextConfig",
            begun_byte_pairs,
            sliding_window=8,
            use_bidirectional_attention=True,
            **GROUPED,
        ),
    ),
    Family(
        "GPT-NeoX", DECODER, model_of("GPTNeoXForCausalLM GPTNeoXConfig", plain_byte_pairs, **SIZES)
    ),
    Family(
        "GPT-J",
        DECODER,
        model_of(
            "GPTJForCausalLM GPTJConfig",
            plain_byte_pairs,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=96,
            rotary_dim=4,
        ),
    ),
    Family(
        "OPT",
        DECODER,
        model_of(
            "OPTForCausalLM OPTConfig",
            begun_byte_pairs,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=32,
            max_position_embeddings=96,
            word_embed_proj_dim=24,
        ),
    ),
    Family(
        "BLOOM",
        DECODER,
        model_of(
            "BloomForCausalLM BloomConfig", plain_byte_pairs, hidden_size=24, n_layer=2, n_head=4
        ),
    ),
    Family(
        "Falcon", DECODER, model_of("FalconForCausalLM FalconConfig", plain_byte_pairs, **SIZES)
    ),
    Family(
        "Phi-3",
        DECODER,
        model_of("Phi3ForCausalLM Phi3Config", plain_byte_pairs, pad_token_id=0, **SIZES),
    ),
    Family(
        "GPTBigCode",
        DECODER,
        model_of(
            "GPTBigCodeForCausalLM GPTBigCodeConfig",
            plain_byte_pairs,
            n_embd=24,
            n_layer=2,
            n_head=4,
            n_positions=96,
        ),
    ),
    Family(
        "DeepSeek-V3",
        DECODER,
        model_of(
            "DeepseekV3ForCausalLM DeepseekV3Config",
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
    ),
    Family(
        "ModernBERT-decoder",
        DECODER,
        model_of(
            "ModernBertDecoderForCausalLM ModernBertDecoderConfig",
            byte_pairs,
            pad_token_id=1,
            **SIZES,
        ),
    ),
    Family(
        "BERT as a decoder",
        DECODER,
        model_of("BertLMHeadModel BertConfig", word_pieces, is_decoder=True, **SIZES),
    ),
    Family(
        "GPT-OSS",
        DECODER,
        model_of(
            "GptOssForCausalLM GptOssConfig",
            plain_byte_pairs,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=8,
            **GROUPED,
        ),
    ),
    Family(
        "ConvBERT",
        ENCODER,
        model_of("ConvBertForMaskedLM ConvBertConfig", word_pieces, embedding_size=16, **SIZES),
        "maps change with padding",
    ),
    Family(
        "BigBird (block_sparse)",
        ENCODER,
        model_of("BigBirdForMaskedLM BigBirdConfig", word_pieces, block_size=8, **SIZES),
        "no (heads, tokens, tokens) map",
    ),
    Family(
        "Longformer",
        ENCODER,
        model_of("LongformerForMaskedLM LongformerConfig", byte_pairs, attention_window=8, **SIZES),
        "no (heads, tokens, tokens) map",
    ),
    Family(
        "LED",
        ONE_SIDE,
        model_of(
            "LEDForConditionalGeneration LEDConfig",
            byte_pairs,
            attention_window=8,
            d_model=24,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
        ),
        "no (heads, tokens, tokens) map",
    ),
    Family("Mamba", DECODER, tiny_models.mamba, "no (heads, tokens, tokens) map"),
    Family(
        "FNet",
        ENCODER,
        model_of(
            "FNetForMaskedLM FNetConfig",
            word_pieces,
            hidden_size=24,
            num_hidden_layers=2,
            intermediate_size=32,
        ),
        "no (heads, tokens, tokens) map",
    ),
    Family(
        "Funnel",
        ENCODER,
        model_of(
            "FunnelForMaskedLM FunnelConfig",
            word_pieces,
            block_sizes=[1, 1],
            d_model=24,
            n_head=4,
            d_head=6,
            d_inner=32,
        ),
        "no (heads, tokens, tokens) map",
    ),
    Family(
        "Qwen3-Next",
        DECODER,
        model_of(
            "Qwen3NextForCausalLM Qwen3NextConfig",
            plain_byte_pairs,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            **GROUPED,
        ),
        "no (heads, tokens, tokens) map",
    ),
    Family(
        "SqueezeBERT",
        ENCODER,
        model_of(
            "SqueezeBertForMaskedLM SqueezeBertConfig", word_pieces, embedding_size=24, **SIZES
        ),
        "not attention weights",
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
    Family(
        "Whisper",
        "sound",
        model_of(
            "WhisperForConditionalGeneration WhisperConfig",
            plain_byte_pairs,
            pad_token_id=0,
            bos_token_id=0,
            eos_token_id=0,
            decoder_start_token_id=0,
            **{name: size for name, size in TWO_SIDES.items() if name != "max_position_embeddings"},
        ),
        "no embeddings of tokens",
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
            "maps (00 to 06)": "yes, with a sink" if encoder.has_sink else "yes",
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
