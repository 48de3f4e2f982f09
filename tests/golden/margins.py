"""How close the two best picks of a head are: a close pick is another one on another processor."""

import numpy as np
import torch
import transformers as hf
from golden.runs import CORPORA

# All relative to the larger weight.  Float32 differs by some 1e-6 between processors.
LEAST_MARGIN = 1e-4
LARGE_MARGIN = 1e-3
LEAST_SHARE = 0.99  # of the picks of every head that have a large margin


def treebank_sentences():
    """Read the words of each sentence of the treebank."""
    sentences = []
    for split in ("train", "dev"):
        blocks = (CORPORA / f"en_tales-{split}.conllu").read_text().strip().split("\n\n")
        for block in blocks:
            lines = [line for line in block.splitlines() if not line.startswith("#")]
            sentences.append([line.split("\t")[1] for line in lines])
    return sentences


def word_maps(model, tokenizer, words):
    """Compute the attention [layer, head, word, word] between the words of a sentence."""
    is_decoder = not tokenizer.cls_token
    if is_decoder:
        text = " ".join(words)
        encoding = tokenizer(tokenizer.eos_token + text, return_offsets_mapping=True)
        ends = np.cumsum([len(word) + 1 for word in words]) + len(tokenizer.eos_token) - 1
        stops = [stop for _, stop in encoding["offset_mapping"]]
        word_of_token = [int(np.searchsorted(ends, stop)) for stop in stops]
        word_of_token = [None if index == 0 else word for index, word in enumerate(word_of_token)]
    else:
        encoding = tokenizer(words, is_split_into_words=True)
        word_of_token = encoding.word_ids()
    with torch.inference_mode():
        ids = torch.tensor([encoding["input_ids"]])
        attentions = model(input_ids=ids, output_attentions=True).attentions
    maps = torch.stack(attentions)[:, 0].double().numpy()  # [layer, head, token, token]
    member = np.array([[word == w for w in range(len(words))] for word in word_of_token], float)
    return (member / member.sum(axis=0)).T @ maps @ member


def relative_margins(weights):
    """Compute by how much each row's largest weight exceeds its next, relative to it.

    A word cannot pick itself, nor a word that it does not see.
    """
    margins = []
    for word, row in enumerate(weights):
        candidates = np.sort(np.delete(row, word))
        if len(candidates) > 1 and candidates[-2] > 0:
            margins.append(1 - candidates[-2] / candidates[-1])
    return margins


def least_margins(model, tokenizer):
    """Compute the margins of all heads and words, in both directions; one array for each head."""
    model = model.eval()
    model.set_attn_implementation("eager")
    by_head = {}
    for words in treebank_sentences():
        maps = word_maps(model, tokenizer, words)
        for layer, head in np.ndindex(maps.shape[:2]):
            weights = maps[layer, head]
            margins = relative_margins(weights) + relative_margins(weights.T)
            by_head.setdefault((layer, head), []).extend(margins)
    return [np.array(margins) for margins in by_head.values()]


def check_margins(folder):
    """Assert that no head of a model has two best picks that another processor could exchange.

    Returns
    -------
    str
        The smallest margin, and the share of picks with at least `LARGE_MARGIN`.
    """
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModel.from_pretrained(folder)
    by_head = least_margins(model, tokenizer)
    least = min(margins.min() for margins in by_head)
    share = min((margins >= LARGE_MARGIN).mean() for margins in by_head)
    assert least >= LEAST_MARGIN
    assert share >= LEAST_SHARE
    return f"smallest margin of two picks {least:.1e}; {share:.2%} are at least {LARGE_MARGIN}"
