"""Does a verb agree with its subject without the edges of the head that finds subjects?

A *minimal pair* is a sentence of the treebank and the same sentence with the verb in the other
number: "the keys are ..." and "the keys is ...".  The verb of the text is the agreeing one.  It is
masked, and the *preference* is its probability divided by that of both forms, in a model with a
masked-LM head.  The outcome is how much of the preference is lost if the edges between subjects and
verbs are ablated as in `helpers.studies.kobayashi2020.causal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from helpers.data.records import Record
from helpers.errors import InputError, ModelError
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import gold_links, head_label
from helpers.model.encoder import Encoder
from helpers.store.store import Store
from helpers.studies.common.head_edges import cut_passes
from helpers.studies.common.head_removal import map_over_model_copies
from helpers.studies.kobayashi2020.causal import (
    BEST_CHANGES,
    batches_of_one_length,
    compare_best_head,
)
from helpers.studies.kobayashi2020.lenses import list_articles, with_ratio

SUBJECT = "nsubj"
NUMBERS = {
    "is": "are", "was": "were", "has": "have", "does": "do",
    "are": "is", "were": "was", "have": "has", "do": "does",
}  # fmt: skip
PRONOUNS_WITHOUT_S = frozenset({"i", "you", "we", "they", "these", "those"})  # "they see"
AUXILIARIES = frozenset({"aux", "auxpass", "aux:pass", "cop"})


class MinimalPair(NamedTuple):
    """The record of a sentence with its verb masked, the position, and both verbs (ids)."""

    record: Record
    position: int
    forms: list[int]  # the agreeing one first


def other_number(verb: str, subject: str) -> str | None:
    """Change the number of a verb in the present tense: "sees" to "see", "are" to "is".

    A verb without -s may be in another tense.  Therefore it counts only after a subject that ends
    in -s or is one of `PRONOUNS_WITHOUT_S`: a form with -s would be wrong there in any tense.  The
    other form of "pass" ends in -es, so verbs like it are left out.
    """
    if verb in NUMBERS:
        return NUMBERS[verb]
    if verb.endswith("s"):
        return None if verb.endswith("ss") else verb.removesuffix("s")
    return f"{verb}s" if subject.endswith("s") or subject in PRONOUNS_WITHOUT_S else None


def minimal_pair(encoder: Encoder, record: Record) -> MinimalPair | None:
    """Make a minimal pair of a sentence, of the first subject whose verb has a second form.

    Both forms must be single tokens.  A verb with an auxiliary does not agree, and is left out.
    """
    words = record["words"]
    ids = np.array(record["inputs"]["input_ids"])
    groups = np.array(record["inputs"]["groups"]) - record["offset"]  # the word of each token
    with_auxiliary = []
    for head, relation in zip(record["heads"], record["relations"], strict=True):
        if relation in AUXILIARIES:
            with_auxiliary.append(head - 1)
    for link in gold_links(record):
        (verb,) = link.gold
        form = other_number(words[verb].lower(), words[link.word].lower())
        if link.relation != SUBJECT or verb in with_auxiliary or form is None:
            continue
        changed = encoder.encode_words([*words[:verb], form, *words[verb + 1 :]]).ids
        positions = np.flatnonzero(groups == verb)
        if len(positions) == 1 and len(changed) == len(ids):
            masked = ids.copy()
            masked[positions] = encoder.tokenizer.mask_token_id
            inputs = {**record["inputs"], "input_ids": masked.tolist()}
            position = int(positions[0])
            forms = [int(ids[position]), changed[position]]
            return MinimalPair({**record, "inputs": inputs}, position, forms)
    return None


def agreement_table(encoder: Encoder, store: Store, counts: HeadCounts) -> pd.DataFrame:
    """Measure what the ablations of the subject head's edges do to agreement in dev sentences.

    Parameters
    ----------
    encoder
        A model with a masked-LM head.
    store
        Its word-level maps of a treebank.
    counts
        The counts of the store, from whose train sentences the head is chosen.

    Returns
    -------
    DataFrame
        A row for each of the `causal.BEST_CHANGES`: the heads; the number of ``pairs``; the
        ``preference`` of the intact model in percent; what it ``loses``, in percentage points, with
        its interval over articles.

    Raises
    ------
    ModelError
        If the model has no masked-LM head.
    InputError
        If there are no two minimal pairs of the same length.
    """
    if encoder.objective != "masked-lm":
        raise ModelError(
            "this model has no masked-LM head, so it gives no probability of a verb; choose a "
            "model with one, such as bert-base-uncased"
        )
    pairs = {}
    for index, record in enumerate(store.records()):
        pair = minimal_pair(encoder, record) if record["split"] == "dev" else None
        if pair is not None:
            pairs[index] = pair
    batches = batches_of_one_length(store, pairs)
    if not batches:
        raise InputError(
            f"no two dev sentences of one length have a verb that agrees with its {SUBJECT}; give "
            "a treebank with more sentences"
        )
    sentences = np.concatenate(batches).tolist()
    cuts = compare_best_head(store, counts, SUBJECT, sentences)

    def prefer(model: nn.Module, batch: Sequence[int]) -> Float[Tensor, "sentence pass"]:
        batch_pairs = [pairs[sentence] for sentence in batch]
        records = [pair.record for pair in batch_pairs]
        preferences = []
        for output in cut_passes(encoder, model, records, SUBJECT, cuts):
            logits = []
            for row, pair in enumerate(batch_pairs):
                logits.append(output.logits[row, pair.position, pair.forms])
            preferences.append(torch.stack(logits).double().softmax(dim=-1)[:, 0])
        return torch.stack(preferences, dim=1).cpu()

    measured = map_over_model_copies(encoder.model, batches, prefer, "minimal pairs")
    preferences = 100 * torch.cat(measured).numpy()
    articles = np.array(list_articles(store.records()))[sentences]
    by_article = pd.DataFrame(preferences[:, :1] - preferences[:, 1:], articles).groupby(level=0)
    table = pd.DataFrame({"change": BEST_CHANGES, "pairs": len(sentences)})
    table["head"], *_, table["matched_head"] = [head_label(cut.layer, cut.head) for cut in cuts]
    table["preference"] = preferences[:, 0].mean()
    return with_ratio(table, "loses", by_article.sum(), by_article.count())
