"""Compute numbers of a run of SmolLM2 again, without the package helpers.

``python tests/recomputed/smollm2.py --run build/smollm2``, after a run with ``--extended``.

From the cache come the texts (examples.jsonl) and the dequantised weights (safetensors).  All else
is plain transformers, torch and numpy, and the definitions are written a second time.  An edge is
dropped in another way than in helpers: what it carries is subtracted from the heads' outputs, and
no attention weight is changed.

The next-token loss of gradients.csv is smaller by about 0.0001 nats, because helpers adds up the
49,152 exponentials of its softmax in float32, and this script in float64.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from readme import read_records
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "smollm2-0.1.2"
BEGINNING = "<|endoftext|>"
SHARE_LAYERS = (2, 15, 30)
PREVIOUS_SHARE = 0.5  # from which a head is a previous-token head
CUT_SEGMENTS = 24  # on which edges are dropped
CAUSE_SEGMENTS = 8  # which say which dimension the sink has
QUICK_CUT_SEGMENTS = 4
QUICK_CAUSE_SEGMENTS = 2
CAUSE_TEXTS = 8
TEMPLATES = 500
QUICK_TEMPLATES = 16
SUBJECTS = (
    "key", "picture", "author", "letter", "song", "teacher", "window", "book", "report", "friend",
    "door", "road", "plan", "name", "idea", "model", "story", "driver", "doctor", "player",
    "color", "engine", "rule", "map", "sister",
)  # fmt: skip
ATTRACTORS = ("cabinet", "house", "king", "town", "student", "machine", "company", "garden")
PREPOSITIONS = ("to", "of", "near", "behind", "from")
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))


def evenly_spaced(values, count):
    positions = np.linspace(0, len(values) - 1, min(count, len(values)))
    return [values[int(position)] for position in positions]


class Model:
    """The model and its tokenizer, and what is asked of them."""

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32
        ).eval()
        self.layers = self.model.model.layers

    def ids_of_tokens(self, tokens):
        return torch.tensor([self.tokenizer.convert_tokens_to_ids(tokens)])

    def ids_of_words(self, words):
        """Tokens of words with a space before each, without the beginning of the text."""
        return self.tokenizer.backend_tokenizer.encode(
            "".join(f" {word}" for word in words), add_special_tokens=False
        ).ids

    def next_token_losses(self, ids, changed_layers=()):
        """The mean loss of a text in nats, without the edges to the first token in some layers."""
        hooks = []
        for layer in changed_layers:
            hooks += self.edge_hooks(self.layers[layer - 1].self_attn)
        output = self.model(ids, output_attentions=True)
        for hook in hooks:
            hook.remove()
        log_probabilities = output.logits[0, :-1].double().log_softmax(dim=-1)
        return -log_probabilities.gather(1, ids[0, 1:, None]).mean().item()

    def edge_hooks(self, attention):
        """Subtract A[query, first] v[first] from the heads' outputs before they are projected."""
        seen = {}
        config = self.model.config
        copies = config.num_attention_heads // config.num_key_value_heads

        def compute_first(_module, _args, options):
            """The weights of the first key, from the layer's input, by the formula."""
            states = options["hidden_states"]
            n = states.shape[1]
            queries, keys, values = [
                projection(states)[0].view(n, -1, attention.head_dim).transpose(0, 1)
                for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
            ]
            cosines, sines = [part[0] for part in options["position_embeddings"]]
            queries, keys = [rotate(vectors, cosines, sines) for vectors in (queries, keys)]
            keys, values = [vectors.repeat_interleave(copies, dim=0) for vectors in (keys, values)]
            scores = queries @ keys.transpose(1, 2) / attention.head_dim**0.5
            future = torch.ones(n, n, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
            seen["carried"] = weights[:, :, :1] * values[:, :1]  # [head, query, width]

        def subtract(_module, args):
            carried = seen["carried"].transpose(0, 1).flatten(1)  # [query, heads * width]
            return (args[0] - carried,)

        return [
            attention.register_forward_pre_hook(compute_first, with_kwargs=True),
            attention.o_proj.register_forward_pre_hook(subtract),
        ]


def rotate(vectors, cosines, sines):
    """Rotary positions: halves of a vector are the parts of complex numbers."""
    first, second = vectors.chunk(2, dim=-1)
    return vectors * cosines + torch.cat([-second, first], dim=-1) * sines


def section3(model, records):
    """Share to the first token [layer], and number of heads with the previous one."""
    first = 0
    previous = 0
    for record in records:
        ids = model.ids_of_tokens(record["tokens"])
        maps = torch.stack(model.model(ids, output_attentions=True).attentions)[:, 0].double()
        n = maps.shape[-1]
        first = first + maps[..., 0].mean(dim=-1)
        previous = previous + maps.diagonal(-1, dim1=-2, dim2=-1).sum(dim=-1) / n
    first = (first / len(records)).mean(dim=-1)
    n_previous = int((previous / len(records) >= PREVIOUS_SHARE).sum())
    return first.numpy(), n_previous


def sink_dimension(model, records):
    """The dimension in which the first token differs most where its share of attention rises."""
    shares = []
    differences = []
    for record in records[:CAUSE_TEXTS]:
        ids = model.ids_of_tokens(record["tokens"])
        output = model.model(ids, output_attentions=True, output_hidden_states=True)
        maps = torch.stack(output.attentions)[:, 0]
        states = torch.stack(output.hidden_states[:-1])[:, 0]  # before each layer
        shares.append(maps[:, :, 1:, 0].mean(dim=(1, 2)).numpy())
        differences.append((states[:, 0] - states[:, 1:].mean(dim=1)).numpy())
    layer = int(np.argmax(np.diff(np.mean(shares, axis=0), prepend=0)))
    return int(np.abs(np.mean(differences, axis=0)[layer]).argmax())


def templates(count):
    """The beginnings of sentences, with the form of the verb that agrees and the other one."""
    generator = np.random.default_rng(0)
    for item in range(count // 4):
        subject = SUBJECTS[item % len(SUBJECTS)]
        preposition = PREPOSITIONS[generator.integers(len(PREPOSITIONS))]
        attractor = ATTRACTORS[generator.integers(len(ATTRACTORS))]
        singular, plural = VERBS[generator.integers(len(VERBS))]
        for ending in ("", "s"):
            for other_ending in ("", "s"):
                words = ["The", subject + ending, preposition, "the", attractor + other_ending]
                yield words, (plural, singular) if ending else (singular, plural)


def agreement(model, count):
    """The percentage of templates whose agreeing form is the more probable one."""
    right = []
    for words, forms in templates(count):
        beginning = model.tokenizer.convert_tokens_to_ids(BEGINNING)
        prefix = [beginning, *model.ids_of_words(words)]
        totals = []
        for text in forms:
            ids = model.ids_of_words([text])
            logits = model.model(torch.tensor([prefix + ids])).logits[0].double()
            log_probabilities = logits.log_softmax(dim=-1)[len(prefix) - 1 : -1]
            totals.append(log_probabilities[range(len(ids)), ids].sum().item())
        right.append(totals[0] > totals[1])
    return 100 * np.mean(right)


def layers_in(name):
    """The layers that a cut names, such as "4, 13-30"."""
    layers = []
    for part in name.split(", "):
        first, _, last = part.partition("-")
        layers += range(int(first), int(last or first) + 1)
    return layers


def read_table(run, name):
    """A table of the run, or of the run of the later notebooks next to it."""
    for folder in (run, run.with_name(f"{run.name}-later")):
        path = folder / "tables" / f"{name}.csv"
        if path.is_file():
            table = pd.read_csv(path)
            return table[table["model"] == "trained"] if "model" in table else table
    print(f"{name}.csv is not in {run} and not in {run.name}-later")
    return None


@torch.inference_mode()
def compare(run, cache):
    """Some numbers: in the tables of a run, and computed again."""
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    segments = read_records(cache, run, "token", "text")
    model = Model(cache / "models" / FOLDER)
    quick = record["settings"].get("quick", False)
    cut_records = evenly_spaced(segments, QUICK_CUT_SEGMENTS if quick else CUT_SEGMENTS)
    cause_records = evenly_spaced(segments, QUICK_CAUSE_SEGMENTS if quick else CAUSE_SEGMENTS)
    rows = []

    first, n_previous = section3(model, segments)
    table = read_table(run, "token_types")
    for layer in SHARE_LAYERS:
        in_table = table.loc[table["layer"] == layer, "first"].mean()
        name = f"share of attention to the first token, layer {layer}"
        rows.append((name, in_table, first[layer - 1]))
    table = read_table(run, "relative_position")
    in_table = (table["previous"] >= PREVIOUS_SHARE).sum()
    rows.append((f"heads with {PREVIOUS_SHARE:.0%} to the previous token", in_table, n_previous))

    chosen = evenly_spaced(segments, record["settings"]["gradient_segments"] or len(segments))
    losses = [model.next_token_losses(model.ids_of_tokens(text["tokens"])) for text in chosen]
    in_table = read_table(run, "gradients")["loss"].iloc[0]
    rows.append((f"next-token loss, {len(chosen)} segments (nats)", in_table, np.mean(losses)))

    edges = read_table(run, "edges")
    cut_ids = [model.ids_of_tokens(text["tokens"]) for text in cut_records]
    intact = np.array([model.next_token_losses(ids) for ids in cut_ids])
    if edges is not None:
        is_row = edges["model"].eq("trained") & edges["change"].eq("dropped")
        for row in edges[is_row & edges["keys"].eq("first")].itertuples():
            layers = layers_in(row.layers)
            cut = np.array([model.next_token_losses(ids, layers) for ids in cut_ids])
            name = f"loss without edges to the first token, layers {row.layers}"
            rows.append((f"change of the {name} (nats)", row.value, (cut - intact).mean()))

    table = read_table(run, "agreement")
    if table is not None:
        is_row = table["model"].eq("trained") & table["subject"].eq("all")
        (in_table,) = table.loc[is_row & table["attractor"].eq("all"), "right"]
        right = agreement(model, QUICK_TEMPLATES if quick else TEMPLATES)
        rows.append(("verbs that agree (%)", in_table, right))

    table = read_table(run, "sink_causes")
    if table is not None:
        in_table = int(table["numbers"].iloc[0].split()[0])
        rows.append(("dimension of the sink", in_table, sink_dimension(model, cause_records)))

    numbers = pd.DataFrame(rows, columns=["number", "in the run", "recomputed"])
    return numbers.assign(difference=numbers["recomputed"] - numbers["in the run"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="such as build/smollm2")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache")
    arguments = parser.parse_args()
    numbers = compare(arguments.run, arguments.cache)
    print(numbers.to_string(index=False, float_format="{:.6f}".format))


if __name__ == "__main__":
    main()
