"""The causal test of Table 1: its edges, its yardsticks, and its tables on tiny models."""

import numpy as np
import pytest
from toy_corpora import SENTENCES, corpus_of
from toy_decoders import random_decoder

from beyond.papers.accuracy_and_function import causal
from beyond.papers.accuracy_and_function.causal import (
    MATCHED_HEADS,
    OTHER_WORDS,
    SPREAD,
    TURNS,
    RelationCases,
)
from helpers.data.records import Sentence
from helpers.metrics.heads import DIRECTIONS
from helpers.store.extract import extract


def test_cases_of_a_decoder_are_prefixes(tiny_encoder):
    """The later word, here the dependent, attends to the earlier one."""
    encoder = random_decoder(tiny_encoder, "gpt2")
    decode = encoder.tokenizer.decode
    (words,) = [words for words in SENTENCES if len(words) > 2][:1]
    tree = Sentence(tuple(words), tuple(range(len(words))), ("even",) * len(words), "dev", "a")
    record = extract(encoder, corpus_of([tree]), level="word", max_tokens=60).record(0)
    edge = causal.relation_edges(record, "even", DIRECTIONS[0])[1]
    next_case = causal.next_token_case(encoder, record, edge, "a")
    later_case = causal.later_word_case(encoder, record, edge, "a")
    words = [" " + word for word in record["words"]]
    bos = encoder.tokenizer.bos_token
    assert decode(next_case.token_ids) == bos + "".join(words[: edge.query + 1])
    following = decode(next_case.continuations[0])
    assert words[edge.query + 1].startswith(following)
    assert decode(later_case.token_ids) == bos + "".join(words[: edge.query])
    assert decode(later_case.continuations[0]) == words[edge.query]
    assert later_case.queries == (len(later_case.token_ids) - 1,)
    keys = [next_case.token_ids[token] for token in next_case.keys]
    assert decode(keys) == words[edge.key]


def made_up_sample(margins):
    """Make a sample of four edges in each relation, each in an article of its own."""
    n_relations = len(margins)
    case = causal.EdgeCase((1, 2), (0,), (1,), ((0,),), "")
    cases = [case._replace(article=str(number % 4)) for number in range(4 * n_relations)]
    owner = np.arange(len(cases)) // 4
    relations = [f"relation {number}" for number in range(n_relations)]
    return RelationCases(relations, np.array(margins), cases, owner, 2)


def ratios_of(monkeypatch, margins, attention, effects, equal):
    """Tabulate the ratios of made-up heads; edges of a relation are all alike."""
    sample = made_up_sample(margins)
    monkeypatch.setattr(
        causal, "yardstick_effects", lambda *_: np.full((len(sample.cases), 2), 3.0)
    )
    values = [np.array(by_relation)[sample.owner] for by_relation in (attention, effects, equal)]
    return causal.ratio_rows(None, sample, TURNS, causal.Effects(*values)).set_index("ratio")


def test_ratios_compare_heads_of_equal_attention(monkeypatch):
    """The first head of each relation is the most accurate; one relation has no match."""
    margins = [[9.0, 1, 1, 1], [9.0, 1, 1, 1], [9.0, 1, 1, 1]]
    attention = [[0.4, 0.4, 0.35, 0.1], [0.2, 0.21, 0.9, 0.9], [0.5, 0.1, 0.1, 0.1]]
    effects = [[4.0, 1, 4, 99], [4.0, 1, 99, 99], [9.0, 1, 1, 1]]
    equal = np.full((3, 4), 2.0)
    table = ratios_of(monkeypatch, margins, attention, effects, equal)
    assert table.loc[MATCHED_HEADS, "relations"] == 2
    assert table.loc[MATCHED_HEADS, "value"] == pytest.approx(np.sqrt(1.6 * 4))  # 4/2.5, 4/1
    assert table.loc[MATCHED_HEADS, "value_low"] < 2  # relations are resampled
    assert table.loc[SPREAD, "value"] == pytest.approx(1)  # a planted null
    assert table.loc[OTHER_WORDS, "value"] == pytest.approx(1)


def test_a_planted_spread_of_heads_is_found(monkeypatch):
    equal = np.tile(np.geomspace(1, 16, 11), (3, 1))  # of eleven heads
    ones = np.ones_like(equal)
    table = ratios_of(monkeypatch, np.eye(3, 11), ones, ones, equal)
    assert table.loc[SPREAD, "value"] == pytest.approx(16**0.8)
    assert table.loc[MATCHED_HEADS, "value"] == pytest.approx(1)
