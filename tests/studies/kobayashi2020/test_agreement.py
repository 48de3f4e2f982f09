"""Minimal pairs from sentences, and their probabilities by hand in a tiny masked language model."""

import numpy as np
import pytest
import torch
from toy_corpora import corpus_of

from helpers.data.records import Sentence
from helpers.errors import InputError, ModelError
from helpers.metrics.head_counts import count_heads
from helpers.model.forward import padded
from helpers.store.extract import extract
from helpers.studies.common.edge_cuts import DROPPED
from helpers.studies.common.head_edges import HeadCut, cut_head_edges, mark_edges
from helpers.studies.kobayashi2020 import agreement
from helpers.studies.kobayashi2020.causal import BEST_CHANGES, compare_best_head

# The tiny vocabulary has no verb in two forms.  Here "cat" and "dog" are the forms of one.
FORMS = {"cat": "dog", "dog": "cat"}
RELATIONS = ("det", "nsubj", "root", "prep", "det", "pobj", "punct")
HEADS = (2, 3, 0, 3, 6, 4, 3)


def sentence(subject, verb, split, relations=RELATIONS):
    words = ("The", subject, verb, "for", "the", "lan", ".")
    return Sentence(words, HEADS, relations, split, f"{subject}, paragraph 1, sentence 1")


def store_of(encoder, sentences):
    return extract(encoder, corpus_of(sentences), level="word", max_tokens=60)


@pytest.fixture
def verbs(monkeypatch):
    monkeypatch.setattr(agreement, "NUMBERS", FORMS)


@pytest.mark.parametrize(
    ("verb", "subject", "expected"),
    [
        ("are", "keys", "is"),
        ("has", "key", "have"),
        ("sees", "dog", "see"),
        ("see", "dogs", "sees"),
        ("see", "they", "sees"),
        ("put", "dog", None),  # maybe in the past
        ("pass", "they", None),  # its other form is "passes"
    ],
)
def test_other_number(verb, subject, expected):
    assert agreement.other_number(verb, subject) == expected


@pytest.mark.usefixtures("verbs")
def test_minimal_pair_masks_the_verb_of_the_subject(tiny_encoder):
    encoder = tiny_encoder("bert")
    record = store_of(encoder, [sentence("doe", "cat", "dev")]).record(0)
    pair = agreement.minimal_pair(encoder, record)
    tokens = encoder.tokenizer.convert_ids_to_tokens(pair.record["inputs"]["input_ids"])
    assert tokens == ["[CLS]", "the", "doe", "[MASK]", "for", "the", "lan", ".", "[SEP]"]
    assert pair.position == 3
    assert encoder.tokenizer.convert_ids_to_tokens(pair.forms) == ["cat", "dog"]
    assert record["inputs"]["input_ids"][3] == pair.forms[0]  # the record is as it was


@pytest.mark.usefixtures("verbs")
@pytest.mark.parametrize(
    ("verb", "relations"),
    [
        ("cat", ("det", "dep", *RELATIONS[2:])),  # no subject
        ("cat", (*RELATIONS[:3], "aux", *RELATIONS[4:])),  # the auxiliary agrees
        ("Unbelievably", RELATIONS),  # no second form
    ],
)
def test_minimal_pair_leaves_out_a_sentence(tiny_encoder, verb, relations):
    encoder = tiny_encoder("bert")
    record = store_of(encoder, [sentence("doe", verb, "dev", relations)]).record(0)
    assert agreement.minimal_pair(encoder, record) is None


@pytest.mark.usefixtures("verbs")
def test_minimal_pair_leaves_out_a_form_of_several_tokens(tiny_encoder, monkeypatch):
    monkeypatch.setattr(agreement, "NUMBERS", {"cat": "unbelievably"})
    encoder = tiny_encoder("bert")
    record = store_of(encoder, [sentence("doe", "cat", "dev")]).record(0)
    assert agreement.minimal_pair(encoder, record) is None


class AgreementRun:
    """The table of a tiny model on four pairs of two articles."""

    def __init__(self, encoder):
        sentences = []
        for split in ("train", "dev"):
            for subject in ("doe", "hom"):
                sentences += [sentence(subject, verb, split) for verb in FORMS]
        self.encoder = encoder
        self.store = store_of(encoder, sentences)
        self.counts = count_heads(self.store)
        self.table = agreement.agreement_table(encoder, self.store, self.counts)

    @torch.no_grad()
    def preference(self, index, cut=None):
        """Compute the preference of a sentence in percent, with the edges of a head dropped."""
        record = self.store.record(index)
        pair = agreement.minimal_pair(self.encoder, record)
        batch = padded(self.encoder, [pair.record["inputs"]])
        model = self.encoder.model
        if cut is None:
            logits = model(**batch).logits[0, pair.position]
        else:
            edges = mark_edges(record, "nsubj", cut.direction)[None, None]
            with cut_head_edges(model, cut, edges, ~edges):
                logits = model(**batch).logits[0, pair.position]
        agreeing, not_agreeing = torch.exp(logits[pair.forms]).tolist()
        return 100 * agreeing / (agreeing + not_agreeing)


@pytest.mark.usefixtures("verbs")
def test_agreement_table_has_the_mean_losses_of_pairs(tiny_encoder):
    run = AgreementRun(tiny_encoder("bert"))
    table = run.table.set_index("change")
    assert list(table.index) == list(BEST_CHANGES)
    assert (table["pairs"] == 4).all()
    before = [run.preference(index) for index in range(4, 8)]
    np.testing.assert_allclose(table["preference"], np.mean(before), rtol=1e-4)
    best = compare_best_head(run.store, run.counts, "nsubj", [4, 5, 6, 7])[0]
    assert best == HeadCut(best.layer, best.head, best.direction, DROPPED)
    assert table.loc[DROPPED, "head"] == f"{best.layer + 1}-{best.head + 1}"
    after = [run.preference(index, best) for index in range(4, 8)]
    losses = np.array(before) - after
    assert np.abs(losses).max() > 1e-4
    assert table.loc[DROPPED, "loses"] == pytest.approx(losses.mean(), rel=1e-2, abs=1e-5)
    assert (table["matched_head"] != table["head"]).all()
    assert (table["loses_df"] == 1).all()


def test_agreement_table_refuses_what_has_no_pairs(tiny_encoder):
    encoder = tiny_encoder("bert")
    store = store_of(encoder, [sentence("doe", "cat", split) for split in ("train", "dev")])
    with pytest.raises(InputError, match="agrees with its nsubj"):
        agreement.agreement_table(encoder, store, count_heads(store))
    with pytest.raises(ModelError, match="no masked-LM head"):
        agreement.agreement_table(tiny_encoder("t5"), store, count_heads(store))
