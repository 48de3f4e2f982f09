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
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Num

from helpers.cache import cached
from helpers.data.links import NO_MENTION, Links, ordered_mentions, read_links
from helpers.data.records import Record, cluster_of
from helpers.errors import InputError
from helpers.metrics import CODE
from helpers.metrics.heads import LayerNumbers, PerHead, head_label, is_right, picked_words
from helpers.metrics.reference import HERE, paper_table2
from helpers.metrics.statistics import Clusters, cluster_sums, divide, ratio, weighted_ratios
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
NOMINAL_MINUS_ALL = "nominal minus all"
PAPER_MIX = "paper's mix of types"
# Margins that are weighted sums over types.  The paper does not print the shares of its types: they
# are those with which the columns of Table 2 give its first column.
COMBINATIONS = {
    NOMINAL_MINUS_ALL: {"nominal": 1, "all": -1},
    PAPER_MIX: {"pronoun": 0.48, "proper": 0.32, "nominal": 0.20},
}
ALL_MENTIONS = "all mentions"
OWN_TYPE = "the type"
CHOSEN_FOR = (ALL_MENTIONS, OWN_TYPE)  # mentions of train on which a head is the best
HELD_OUT_COLUMNS = (
    "candidates", "chosen_for", "head", "type", "against", "n", "margin", "margin_low",
    "margin_high", "margin_df",
)  # fmt: skip
HEAD = "head"
HELD_OUT = "head of the type (chosen on train, scored on dev)"


@dataclass(frozen=True)
class AntecedentJudgements:
    """For each mention that has an antecedent, which systems pick a right one.

    Attributes
    ----------
    mentions : DataFrame
        A row for each mention: ``document`` and ``split``; for each of `ROWS` whether it is of that
        type; and for each of `SYSTEMS` whether that selects an antecedent.
    heads : dict of bool arrays of shape (layer, head, mention)
        By the set of candidates: whether the attention head picks an antecedent.
    sees_antecedent : bool array of shape (layer, mention)
        Whether the mention sees the head word of an antecedent in the layer, and therefore counts.
    chance : dict of float arrays of shape (layer, mention)
        By the set of candidates: the share of antecedents among the candidates that the mention
        sees, which is the probability that a random pick is right.
    layer_numbers : sequence of int
        The numbers of the layers that attend, from 1; all if there are none.
    """

    mentions: pd.DataFrame
    heads: Mapping[Candidates, Bool[np.ndarray, "layer head mention"]]
    sees_antecedent: Bool[np.ndarray, "layer mention"]
    chance: Mapping[Candidates, Float[np.ndarray, "layer mention"]]
    layer_numbers: LayerNumbers = ()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all values as arrays; inverse of `from_arrays`."""
        arrays = {"sees_antecedent": self.sees_antecedent}
        arrays["layer_numbers"] = np.array(self.layer_numbers, dtype=int)
        for group in ("mentions", "heads", "chance"):
            for name, values in getattr(self, group).items():
                arrays[f"{group} {name}"] = np.array(list(values))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> AntecedentJudgements:
        """Make judgements of the arrays from `to_arrays`."""
        groups: dict[str, dict[Any, np.ndarray]] = defaultdict(dict)
        for key, values in arrays.items():
            group, _, name = key.partition(" ")
            groups[group][name] = values
        mentions = pd.DataFrame(groups["mentions"])
        seen = arrays["sees_antecedent"]
        numbers = arrays["layer_numbers"]
        return cls(mentions, groups["heads"], seen, groups["chance"], numbers)

    def of_split(self, split: str) -> AntecedentJudgements:
        """Select the mentions of the documents of a split, "train" or "dev"."""
        is_in_split = (self.mentions["split"] == split).to_numpy()
        return AntecedentJudgements(
            mentions=self.mentions[is_in_split],
            heads={name: right[:, :, is_in_split] for name, right in self.heads.items()},
            sees_antecedent=self.sees_antecedent[:, is_in_split],
            chance={name: percent[:, is_in_split] for name, percent in self.chance.items()},
            layer_numbers=self.layer_numbers,
        )

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
        is_of_type = self.mentions[mention_type].to_numpy()
        right = self.heads[candidates][..., is_of_type].sum(axis=-1)
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
        if not self.mentions[mention_type].any():
            mention_type = "all"
        n_right = self.heads[candidates][..., self.mentions[mention_type]].sum(axis=-1)
        layer, head = np.unravel_index(n_right.argmax(), n_right.shape)
        return int(layer), int(head)

    def sums(
        self,
        values: Num[np.ndarray, " mention"] | Bool[np.ndarray, " mention"],
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
        documents = self.mentions["document"].to_numpy()
        counts = self._mentions_that_count(mention_type, layer)
        by_mention = np.column_stack([np.where(counts, 100 * values, 0), counts])
        totals, n_mentions = cluster_sums(by_mention, documents, np.unique(documents)).T
        return totals, n_mentions

    def mean_chance(self, candidates: Candidates, mention_type: str, layer: int) -> float:
        """Compute the accuracy of random picks on the mentions that count, in percent."""
        counts = self._mentions_that_count(mention_type, layer)
        return 100 * self.chance[candidates][layer, counts].mean() if counts.any() else np.nan

    def _mentions_that_count(
        self, mention_type: str, layer: int | None
    ) -> Bool[np.ndarray, " mention"]:
        """Mark the mentions of a type, in a layer those that see an antecedent."""
        is_of_type = self.mentions[mention_type].to_numpy()
        return is_of_type if layer is None else is_of_type & self.sees_antecedent[layer]

    def held_out(self) -> bool:
        """Whether a head can be chosen on train and scored on dev."""
        return {"train", "dev"} <= set(self.mentions["split"])


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
        lambda: evaluate_antecedents(texts).to_arrays(),
        inputs={"store": store.key},
        code=CODE,
    )
    return AntecedentJudgements.from_arrays(arrays)


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
    tables = []
    heads: dict[Candidates, list] = {candidates: [] for candidates in CANDIDATES}
    chance: dict[Candidates, list] = {candidates: [] for candidates in CANDIDATES}
    sees_antecedent = []
    for number, example in enumerate(examples):
        record = example.record
        links = read_links(record)
        is_mention = links.mention != NO_MENTION
        if not is_mention.any():  # the maps of a document without antecedents are not needed
            continue
        links = Links(*(values[is_mention] for values in links))
        tables.append(_judge_rules(record, links).assign(document=cluster_of(record, number)))
        words = example.word_positions
        maps = example.attention[..., words, words]
        visible = example.visible_keys[:, words, words]
        seen = visible[:, links.query]  # [layer, mention, word]
        sees_antecedent.append((seen & links.gold).any(axis=-1))
        is_other_word = links.query[:, None] != np.arange(links.gold.shape[1])
        for name, candidates in zip(CANDIDATES, (links.candidates, is_other_word), strict=True):
            picked = picked_words(
                maps, links.query, candidates=candidates, visible=visible[:, None]
            )
            heads[name].append(is_right(picked, links))
            n_right = (seen & links.gold).sum(axis=-1)
            chance[name].append(divide(n_right, (seen & candidates).sum(axis=-1)))
    if not tables:
        raise InputError(
            "no mention has an antecedent within its document; give documents in which coreference "
            "chains continue, and raise --max-tokens if documents are cut too early"
        )
    table = pd.concat(tables, ignore_index=True)
    table["document"], _ = pd.factorize(table["document"])
    return AntecedentJudgements(
        mentions=table,
        heads={name: np.concatenate(parts, axis=-1) for name, parts in heads.items()},
        sees_antecedent=np.concatenate(sees_antecedent, axis=-1),
        chance={name: np.concatenate(parts, axis=-1) for name, parts in chance.items()},
        layer_numbers=example.layer_numbers,
    )


def _judge_rules(record: Record, links: Links) -> pd.DataFrame:
    """Tabulate the types of the mentions that have an antecedent, and which rules find one."""
    mentions = document_mentions(record)
    rows = []
    for index in links.mention.tolist():
        mention = mentions[index]
        row: dict[str, Any] = {"split": record.get("split", ""), "all": True}
        row |= {mention_type: mention.type == mention_type for mention_type in MENTION_TYPES}
        picks = {system: select_antecedent(system, mentions, index) for system in SYSTEMS}
        for system, pick in picks.items():
            row[system] = pick is not None and mentions[pick].chain == mention.chain
        row[UNMATCHED] = row["nominal"] and picks["head match"] is None
        rows.append(row)
    return pd.DataFrame(rows)


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
    systems: list[tuple[str, Any]] = [(rule, "earlier mentions") for rule in SYSTEMS]
    systems += [(HEAD, candidates) for candidates in CANDIDATES]
    if judgements.held_out():
        systems += [(HELD_OUT, candidates) for candidates in CANDIDATES]
    paper = paper_table2().stack()
    rows = []
    for (system, candidates), mention_type in product(systems, ROWS):
        row = {"system": system, "head": "", "candidates": candidates, "type": mention_type}
        chance = np.nan
        if system in SYSTEMS:
            totals, counts = judgements.sums(judgements.mentions[system].to_numpy(), mention_type)
        else:
            scored = judgements
            best = judgements.best_head(candidates)
            if system == HELD_OUT:
                best = judgements.of_split("train").best_head(candidates, mention_type)
                scored = judgements.of_split("dev")
            row["head"] = head_label(*best, judgements.layer_numbers)
            totals, counts = scored.sums(scored.heads[candidates][best], mention_type, best[0])
            chance = scored.mean_chance(candidates, mention_type, best[0])
        row |= {"n": counts.sum(), **ratio(totals, counts).columns("accuracy")}
        row["paper_accuracy"] = paper.get((system, mention_type), np.nan)
        rows.append(row | {"chance": chance})
    return pd.DataFrame(rows)


def coreference_held_out(judgements: AntecedentJudgements) -> pd.DataFrame:
    """Compute the margin over each rule of the head that is best on train, on the dev documents.

    The head is the one that is best on all mentions, as in the paper, or the one that is best on
    the type of mention (``chosen_for``).  Head and rule are paired in the interval of the margin.

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
    margins = {mention_type: {mention_type: 1} for mention_type in ROWS} | COMBINATIONS
    rows = []
    for candidates, rule, chosen_for in product(CANDIDATES, SYSTEMS, CHOSEN_FOR):
        sums = {}
        heads = {}
        for mention_type in ROWS:
            chosen_type = "all" if chosen_for == ALL_MENTIONS else mention_type
            best = train.best_head(candidates, chosen_type)
            heads[mention_type] = head_label(*best, train.layer_numbers)
            lead = dev.heads[candidates][best].astype(int) - dev.mentions[rule].to_numpy()
            sums[mention_type] = dev.sums(lead, mention_type, best[0])
        for name, weights in margins.items():
            by_type = np.array([sums[mention_type] for mention_type in weights])
            totals, counts = by_type.transpose(1, 2, 0)  # each [document, type]
            margin = weighted_ratios(totals, counts, list(weights.values()))
            labels = dict.fromkeys(heads[mention_type] for mention_type in weights)
            row = {"candidates": candidates, "chosen_for": chosen_for, "head": ", ".join(labels)}
            row |= {"type": name, "against": rule, "n": counts.sum(axis=0).max()}
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
