"""Antecedents picked by single attention heads and by rules: Table 2 of the paper (section 4.3).

An antecedent of a mention is an earlier mention of the same chain.  Mentions are ordered by their
first word, then by their last one.  The nearest antecedent is the last one before the mention.

The third sieve of the rules asks whether two mentions agree in number, gender and person, as far as
the words of ``mention_words.csv`` and the endings of nouns show it.  Each attribute has the values
that are possible for a mention.  Two mentions agree if every attribute has a value in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from helpers.cache import cached
from helpers.data.links import NO_MENTION, Links, ordered_mentions, read_links
from helpers.data.records import Record, cluster_of
from helpers.errors import InputError
from helpers.metrics import CODE
from helpers.metrics.heads import PerHead, head_label, is_right, picked_words
from helpers.metrics.reference import HERE, paper_table2
from helpers.metrics.statistics import (
    Clusters,
    Real,
    cluster_sums,
    divide,
    ratio,
    weighted_ratios,
)
from helpers.progress import progress
from helpers.store.store import Example, Store

# Words that a head can pick: head words of all other mentions, or all other words.
Candidates = Literal["mentions", "words"]
Attributes = Mapping[str, str]  # by the name of the attribute

CANDIDATES: tuple[Candidates, ...] = get_args(Candidates)
MENTION_TYPES = ("pronoun", "proper", "nominal")  # columns of Table 2
UNKNOWN = "unknown"  # the type of a mention whose head word has no tag
# By the head word's tag; any other tag makes a mention nominal.
TYPES_BY_TAG = {"PRON": "pronoun", "PROPN": "proper", None: UNKNOWN, "_": UNKNOWN}
UNMATCHED = "nominal without match"  # no earlier mention has the same head word
ROWS = ("all", *MENTION_TYPES, UNMATCHED)
# Margins that are weighted sums over types.  The paper does not print the shares of its types: they
# are those with which the columns of Table 2 give its first column.
COMBINATIONS = {
    "nominal minus all": {"nominal": 1, "all": -1},
    "paper's mix of types": {"pronoun": 0.48, "proper": 0.32, "nominal": 0.20},
}
EARLIER_MENTIONS = "earlier mentions"  # the candidates of rules
HELD_OUT_COLUMNS = ["candidates", "head", "type", "against", "n", "margin"]  # and its interval
HEAD = "head"
HELD_OUT = "head of the type (chosen on train, scored on dev)"


@dataclass(frozen=True)
class AntecedentJudgements:
    """For each mention that has an antecedent, which systems pick a right one.

    Attributes
    ----------
    split : array of shape (mention,)
        Split of the document: "train", "dev" or "".
    document : int array of shape (mention,)
        Number of the document.
    types : bool array of shape (type, mention)
        Whether the mention is of each of `ROWS`.
    rules : bool array of shape (rule, mention)
        Whether each of `SYSTEMS` selects an antecedent.
    heads : bool array of shape (candidates, layer, head, mention)
        Whether the attention head picks an antecedent, for each of `CANDIDATES`.
    sees_antecedent : bool array of shape (layer, mention)
        Whether the mention sees the head word of an antecedent in the layer, and therefore counts.
    chance : float array of shape (candidates, layer, mention)
        The share of antecedents among the candidates that the mention sees, which is the
        probability that a random pick is right.
    """

    split: Shaped[np.ndarray, " mention"]
    document: Int[np.ndarray, " mention"]
    types: Bool[np.ndarray, "type mention"]
    rules: Bool[np.ndarray, "rule mention"]
    heads: Bool[np.ndarray, "candidates layer head mention"]
    sees_antecedent: Bool[np.ndarray, "layer mention"]
    chance: Float[np.ndarray, "candidates layer mention"]

    def of_split(self, split: str) -> AntecedentJudgements:
        """Select the mentions of the documents of a split, "train" or "dev"."""
        is_in_split = self.split == split
        arrays = {name: values[..., is_in_split] for name, values in vars(self).items()}
        return AntecedentJudgements(**arrays)

    def held_out(self) -> bool:
        """Whether a head can be chosen on train and scored on dev."""
        return {"train", "dev"} <= set(self.split)

    def of_type(self, mention_type: str) -> Bool[np.ndarray, " mention"]:
        """Mark the mentions of a type, one of `ROWS`."""
        return self.types[ROWS.index(mention_type)]

    def accuracy(self, candidates: Candidates = "mentions", mention_type: str = "all") -> PerHead:
        """Compute the accuracy of every attention head on the mentions that count, in percent.

        Parameters
        ----------
        candidates : {"mentions", "words"}
            Words that a head can pick.
        mention_type : str
            One of `ROWS`, of which there are mentions.

        Returns
        -------
        float array of shape (layer, head)
            NaN in a layer in which no mention counts.
        """
        is_of_type = self.of_type(mention_type)
        right = self.heads[CANDIDATES.index(candidates)][..., is_of_type].sum(axis=-1)
        n_mentions = self.sees_antecedent[:, is_of_type].sum(axis=-1)  # [layer]
        return divide(100 * right, n_mentions[:, None])

    def best_head(
        self, candidates: Candidates = "mentions", mention_type: str = "all"
    ) -> tuple[int, int]:
        """Find the attention head that picks most antecedents of a type of mention.

        Parameters
        ----------
        candidates : {"mentions", "words"}
            Words that a head can pick.
        mention_type : str
            One of `ROWS`.  The head for a type without mentions is chosen on mentions of all types.

        Returns
        -------
        layer, head : int
            Indices from 0.
        """
        if not self.of_type(mention_type).any():
            mention_type = "all"
        right = self.heads[CANDIDATES.index(candidates)][..., self.of_type(mention_type)]
        layer, head = np.unravel_index(right.sum(axis=-1).argmax(), right.shape[:2])
        return int(layer), int(head)

    def sums(
        self,
        values: Shaped[np.ndarray, " mention"],
        mention_type: str,
        layer: int | None = None,
    ) -> tuple[Clusters, Clusters]:
        """Sum a value of each mention over documents: the input of an interval over documents.

        Parameters
        ----------
        values : array of shape (mention,)
            For example whether a system is right.
        mention_type : str
            One of `ROWS`.
        layer : int, optional
            The layer in which mentions must see an antecedent.  By default all mentions count.

        Returns
        -------
        totals : array of shape (document,)
            Sums of the values, times 100 for percentages.
        counts : array of shape (document,)
            Number of mentions.
        """
        counts = self.of_type(mention_type)
        if layer is not None:
            counts = counts & self.sees_antecedent[layer]
        by_mention = np.column_stack([np.where(counts, 100 * values, 0), counts])
        totals, n_mentions = cluster_sums(by_mention, self.document, np.unique(self.document)).T
        return totals, n_mentions


def antecedents(store: Store) -> AntecedentJudgements:
    """Let every attention head and rule pick an antecedent for each mention of a store, once (4.3).

    Parameters
    ----------
    store : Store
        Word-level maps of coreference documents.

    Returns
    -------
    AntecedentJudgements
    """
    texts = progress(store, "antecedents", unit="document")
    arrays = cached(
        "antecedents",
        lambda: vars(evaluate_antecedents(texts)),
        inputs={"store": store.key},
        code=CODE,
    )
    return AntecedentJudgements(**arrays)


def evaluate_antecedents(examples: Iterable[Example]) -> AntecedentJudgements:
    """Let every attention head and every rule pick an antecedent for every mention that has one.

    A head picks the candidate that the mention's head word attends to most.  It is right if that is
    the head word of an earlier mention of the same chain.  The mention's own head word, special
    tokens and words that the layer's mask hides are never candidates.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of coreference documents, such as ``Study().coreference_store()``.

    Returns
    -------
    AntecedentJudgements

    Raises
    ------
    InputError
        If no mention has an antecedent.
    """
    parts = defaultdict(list)
    for number, example in enumerate(examples):
        record = example.record
        links = read_links(record)
        is_mention = links.mention != NO_MENTION
        if not is_mention.any():  # the maps of a document without antecedents are not needed
            continue
        links = Links(*(values[is_mention] for values in links))
        parts["split"].append([record.get("split", "")] * len(links.word))
        parts["document"].append([cluster_of(record, number)] * len(links.word))
        types, rules = _judge_rules(record, links.mention.tolist())
        parts["types"].append(types)
        parts["rules"].append(rules)
        words = example.word_positions
        maps = example.attention[..., words, words]
        visible = example.visible_keys[:, words, words]
        seen = visible[:, links.query]  # [layer, mention, word]
        n_right = (seen & links.gold).sum(axis=-1)
        parts["sees_antecedent"].append(n_right > 0)
        is_other_word = links.query[:, None] != np.arange(links.gold.shape[1])
        right = []
        chance = []
        for candidates in (links.candidates, is_other_word):  # in the order of `CANDIDATES`
            picked = picked_words(
                maps, links.query, candidates=candidates, visible=visible[:, None]
            )
            right.append(is_right(picked, links))
            chance.append(divide(n_right, (seen & candidates).sum(axis=-1)))
        parts["heads"].append(right)
        parts["chance"].append(chance)
    if not parts:
        raise InputError(
            "no mention has an antecedent within its document; give documents in which coreference "
            "chains continue, and raise --max-tokens if documents are cut too early"
        )
    arrays = {name: np.concatenate(values, axis=-1) for name, values in parts.items()}
    arrays["document"], _ = pd.factorize(arrays["document"])
    return AntecedentJudgements(**arrays)


def _judge_rules(
    record: Record, indices: Sequence[int]
) -> tuple[Bool[np.ndarray, "type mention"], Bool[np.ndarray, "rule mention"]]:
    """Mark the types of some mentions of a document, and which rules find their antecedents."""
    mentions = document_mentions(record)
    types = []
    rules = []
    for index in indices:
        mention = mentions[index]
        picks = {system: select_antecedent(system, mentions, index) for system in SYSTEMS}
        is_unmatched = mention.type == "nominal" and picks["head match"] is None
        is_of_type = [mention.type == mention_type for mention_type in MENTION_TYPES]
        types.append([True, *is_of_type, is_unmatched])
        chains = [None if pick is None else mentions[pick].chain for pick in picks.values()]
        rules.append([chain == mention.chain for chain in chains])
    return np.array(types).T, np.array(rules).T


def coreference_table(judgements: AntecedentJudgements) -> pd.DataFrame:
    """Compute Table 2: the accuracy of heads and rules, with intervals over documents.

    There is a row for each system, set of candidates and type of mention.  The systems are the
    rules, the head that is best on all mentions of all documents, as in the paper (5-4 there), and
    the head that is best on the type in train, scored on dev, if both splits exist.  The paper does
    not say whether a head picks among mentions or, as in section 4.1, among all words: the rows of
    both have its figure.

    Parameters
    ----------
    judgements : AntecedentJudgements
        What `evaluate_antecedents` returns.

    Returns
    -------
    DataFrame
        Columns ``system``, ``head``, ``candidates``, ``type``, ``n`` (mentions; of those of a head,
        the ones that see an antecedent), ``accuracy`` in percent, with a 95% bootstrap interval,
        ``paper_accuracy``, and the accuracy ``chance`` of a random pick among the candidates that a
        mention sees in the head's layer.
    """
    rows = []
    rules = zip(SYSTEMS, judgements.rules, strict=True)
    for (rule, right), mention_type in product(rules, ROWS):
        row = {"system": rule, "head": "", "candidates": EARLIER_MENTIONS, "type": mention_type}
        rows.append(row | _accuracy(*judgements.sums(right, mention_type)))
    choices = [(HEAD, judgements, judgements)]
    if judgements.held_out():
        choices.append((HELD_OUT, judgements.of_split("train"), judgements.of_split("dev")))
    for (system, train, dev), candidates, mention_type in product(choices, CANDIDATES, ROWS):
        layer, head = train.best_head(candidates, "all" if system == HEAD else mention_type)
        row = {"system": system, "head": head_label(layer, head)}
        row |= {"candidates": candidates, "type": mention_type}
        index = CANDIDATES.index(candidates)
        row |= _accuracy(*dev.sums(dev.heads[index, layer, head], mention_type, layer))
        chance, n_mentions = dev.sums(dev.chance[index, layer], mention_type, layer)
        rows.append(row | {"chance": float(divide(chance.sum(), n_mentions.sum()))})
    in_paper = paper_table2().stack().rename("paper_accuracy")
    return pd.DataFrame(rows).join(in_paper, on=["system", "type"])


def _accuracy(totals: Clusters, counts: Clusters) -> dict[str, Real]:
    """Name the columns of an accuracy, from `AntecedentJudgements.sums`."""
    return {"n": counts.sum(), **ratio(totals, counts).columns("accuracy")}


def coreference_held_out(judgements: AntecedentJudgements) -> pd.DataFrame:
    """Compute the margin over each rule of the head that is best on train, on the dev documents.

    The head is the one that is best on all mentions, as in the paper.  Head and rule are paired in
    the interval of the margin.

    Parameters
    ----------
    judgements : AntecedentJudgements
        What `evaluate_antecedents` returns.

    Returns
    -------
    DataFrame
        Columns `HELD_OUT_COLUMNS`; margins in percentage points, with a 95% bootstrap interval over
        documents.  There is a row for each type of mention, and one for each of `COMBINATIONS`: the
        margin at nominal mentions minus that at all, and the margin if the types had the shares
        that they have in the paper.  The table is empty if the corpus has not both splits.
    """
    if not judgements.held_out():
        return pd.DataFrame(columns=HELD_OUT_COLUMNS)
    train = judgements.of_split("train")
    dev = judgements.of_split("dev")
    weights_of_types = {name: {name: 1} for name in ROWS} | COMBINATIONS
    rows = []
    for candidates, rule, row_type in product(CANDIDATES, SYSTEMS, weights_of_types):
        layer, head = train.best_head(candidates)
        head_right = dev.heads[CANDIDATES.index(candidates), layer, head].astype(int)
        lead = head_right - dev.rules[list(SYSTEMS).index(rule)]
        weights = weights_of_types[row_type]
        sums = np.array([dev.sums(lead, mention_type, layer) for mention_type in weights])
        totals, counts = sums.transpose(1, 2, 0)  # each [document, type]
        margin = weighted_ratios(totals, counts, list(weights.values()))
        row = {"candidates": candidates, "head": head_label(layer, head), "type": row_type}
        row |= {"against": rule, "n": counts.sum(axis=0).max()}
        rows.append(row | margin.columns("margin", df=True))
    return pd.DataFrame(rows)


class DocumentMention(NamedTuple):
    """A mention of a document, with what the rules compare.

    Attributes
    ----------
    chain : int or None
        Number of the coreference chain; None for a mention without one.
    type : str
        One of `MENTION_TYPES`, or `UNKNOWN`.
    string : list of str
        Words, in lower case.
    head_string : str
        Head word, in lower case.
    attributes : dict of str to str
        Values that its ``number`` ("s", "p"), ``gender`` ("m", "f", "n") and ``person`` can have,
        one letter for each.
    """

    chain: int | None
    type: str
    string: list[str]
    head_string: str
    attributes: Attributes


def document_mentions(record: Record) -> list[DocumentMention]:
    """List the mentions of a document's record (``words``, ``tags``, ``mentions``) in order."""
    words = [word.lower() for word in record["words"]]
    tags = record["tags"]
    mentions = []
    for start, end, chain, head in ordered_mentions(record):
        mentions.append(
            DocumentMention(
                chain=chain,
                type=TYPES_BY_TAG.get(tags[head], "nominal"),
                string=words[start:end],
                head_string=words[head],
                attributes=attributes(words[start:end], tags[start:end], head - start),
            )
        )
    return mentions


def select_antecedent(system: str, mentions: Sequence[DocumentMention], index: int) -> int | None:
    """Select the nearest earlier mention that passes the first sieve that any mention passes.

    Parameters
    ----------
    system : str
        One of `SYSTEMS`.
    mentions : sequence of DocumentMention
        Mentions of a document, in order.
    index : int
        The mention that looks for an antecedent.

    Returns
    -------
    int or None
        Index of the selected mention; None if no earlier mention passes.
    """
    for sieve in SYSTEMS[system]:
        for earlier in reversed(range(index)):
            if sieve(mentions[index], mentions[earlier]):
                return earlier
    return None


def _same_words(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.string == earlier.string


def _same_head_word(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.head_string == earlier.head_string


def _agree(mention: DocumentMention, earlier: DocumentMention) -> bool:
    """Whether every attribute has a value that both mentions can have."""
    return all(
        set(values) & set(earlier.attributes[name]) for name, values in mention.attributes.items()
    )


def _any_mention(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return True


# The sieves of each baseline, in the order in which they are tried.  Those of the rules are the
# sieves of section 4.3, after Lee et al. (2011).  The paper does not have `MATCH_ELSE_NEAREST`:
# head match finds nothing for most pronouns, so a lead over it says little where pronouns are many.
MATCH_ELSE_NEAREST = "match, else nearest"
SYSTEMS = {
    "nearest mention": (_any_mention,),
    "head match": (_same_head_word,),
    MATCH_ELSE_NEAREST: (_same_head_word, _any_mention),
    "rule-based": (_same_words, _same_head_word, _agree, _any_mention),
}

SINGULAR_ENDINGS = ("ss", "us", "is", "ics")
NOUN_TAGS = ("NOUN", "PROPN")
ANY_NUMBER = "sp"
ANY_GENDER = "mfn"


def attributes(words: Sequence[str], tags: Sequence[str | None], head: int) -> Attributes:
    """Derive the attributes of a mention from its words.

    Two nouns joined by "and" are plural.  A common noun that the list does not have is neuter, and
    an unknown name may have any gender.

    Parameters
    ----------
    words, tags : sequence of str
        Words of the mention in lower case, and their universal part-of-speech tags.
    head : int
        Index of the head word in ``words``.

    Returns
    -------
    dict of str to str
        As in `DocumentMention`.
    """
    pronouns = _word_attributes()["pronoun"]
    if len(words) == 1 and words[0] in pronouns:
        return pronouns[words[0]]
    number = _number(words, tags, head)
    return {"number": number, "gender": _gender(words, tags, head), "person": "3"}


def _number(words: Sequence[str], tags: Sequence[str | None], head: int) -> str:
    """Derive the number of a mention."""
    position = head + 1
    while position < len(words) and tags[position] in NOUN_TAGS:
        position += 1
    # "and" follows the head in "Ann and Bob", but not in "a cup of tea and milk".  The last word
    # cannot join anything.
    is_joined = position + 1 < len(words) and words[position] in ("and", "&")
    word = words[head]
    if is_joined or word in _word_attributes()["plural noun"]:
        return "p"
    if tags[head] == "PROPN":  # names of groups: "the Beatles", "the United Nations"
        return ANY_NUMBER if words[0] == "the" and word.endswith("s") else "s"
    if tags[head] == "NOUN":
        return "p" if word.endswith("s") and not word.endswith(SINGULAR_ENDINGS) else "s"
    return ANY_NUMBER


def _gender(words: Sequence[str], tags: Sequence[str | None], head: int) -> str:
    """Derive the gender of a mention."""
    # The words before a name's head can show its gender: "Mrs Lee", "Ada Lovelace".
    first = 0 if tags[head] == "PROPN" else head
    nouns_and_names = _word_attributes()["noun or name"]
    for word in words[first : head + 1]:
        without_dot = word.rstrip(".")
        if without_dot in nouns_and_names:
            return nouns_and_names[without_dot]["gender"]
    return "n" if tags[head] == "NOUN" else ANY_GENDER


@cache
def _word_attributes() -> Mapping[str, Mapping[str, Attributes]]:
    """Read the attributes of words, by word class and word."""
    table = pd.read_csv(HERE / "mention_words.csv", dtype=str, index_col="kind")
    table["words"] = table["words"].str.split()
    by_word = table.explode("words").set_index("words", append=True)
    return {name: by_word.loc[name].to_dict("index") for name in table.index.unique()}
