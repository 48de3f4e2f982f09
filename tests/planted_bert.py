"""A tiny model of BERT-base's geometry whose heads do what the paper's do, at the same places.

Hidden states are nearly the input embeddings in every layer, because the outputs of attention are
tiny and those of the other sublayers zero.  They are not zero, so that the loss has gradients.
An embedding has a part for the position and one for the class of its token.  The queries of a head
are constant (it attends to classes of tokens), or they are rotated positions (it attends to a
relative position).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
import transformers as hf

from helpers.metrics.reference import ALL, paper_table1

LAYERS = 12
HEADS = 12
VOCABULARY = 30522
POSITIONS = 64
FREQUENCIES = (1, 9)  # in turns over all positions
WIDTH = 4  # of a head: a cosine and a sine of each frequency
SHARPNESS = 400.0
TINY = 3e-3  # standard deviation of the weights through which a head puts out what it reads
BROAD = "broad"
PREVIOUS = -1
NEXT = 1
WORDS_OF_A_RELATION = 60
RELATIONS = [relation for relation in paper_table1().index if relation != ALL]
FILLERS = [f"w{number}" for number in range(20)]
# Relative positions and special heads of the paper's sections 3.1 to 3.3 and Figure 1.
POSITIONAL_HEADS = {
    (2, 12): PREVIOUS, (4, 12): PREVIOUS, (7, 12): PREVIOUS, (8, 12): PREVIOUS,
    (1, 12): NEXT, (2, 11): NEXT, (2, 10): NEXT, (3, 1): NEXT, (6, 12): NEXT,
}  # fmt: skip
SEP_LAYERS = range(6, 11)


def parent_word(relation):
    """Name the word that the paper's head for a relation attends to."""
    return f"{relation}parent"


# Tokens that heads tell apart; all others are alike.
CLASSES = ["[SEP]", ".", ",", *map(parent_word, RELATIONS)]


def head_targets():
    """List what each head attends to: a relative position, `BROAD`, or classes of tokens."""
    targets = defaultdict(lambda: BROAD)
    for layer in SEP_LAYERS:
        for head in range(1, HEADS + 1):
            targets[layer, head] = {"[SEP]"}
    targets |= POSITIONAL_HEADS
    targets[11, 6] = {".", ","}
    by_head = defaultdict(set)
    for relation in RELATIONS:
        layer, head = map(int, paper_table1().loc[relation, "head"].split("-"))
        by_head[layer, head].add(parent_word(relation))
    return targets | by_head


def tokens():
    named = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "dependent", *FILLERS]
    named += [parent_word(relation) for relation in RELATIONS]
    return named + [f"[unused{number}]" for number in range(VOCABULARY - len(named))]


def model_and_tokenizer():
    """Make the model and its tokenizer, as in `tiny_models`."""
    names = tokens()
    tokenizer = hf.BertTokenizer(vocab={name: index for index, name in enumerate(names)})
    hidden = WIDTH * HEADS
    config = hf.BertConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=4, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    model = hf.BertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.bert.parameters():
            parameter.zero_()
        for name, module in model.named_modules():
            if name.endswith("LayerNorm"):
                module.weight.fill_(1)
        _put_out_a_little(model.bert.encoder.layer)
        positions = model.bert.embeddings.position_embeddings.weight
        positions[:, : 2 * WIDTH] = _with_zero_mean(_waves(torch.arange(POSITIONS)))
        words = model.bert.embeddings.word_embeddings.weight
        columns = {name: 2 * WIDTH + 2 * index for index, name in enumerate(CLASSES)}
        for index, name in enumerate(names):
            column = columns.get(name, hidden - 2)
            words[index, column] = 1
            words[index, column + 1] = -1
        scale = hidden**0.5 / (4 + 2) ** 0.5  # of a hidden state after its normalisation
        for (layer, head), target in head_targets().items():
            attention = model.bert.encoder.layer[layer - 1].attention.self
            rows = slice((head - 1) * WIDTH, head * WIDTH)
            if target == BROAD:
                continue
            if isinstance(target, int):
                attention.query.weight[rows, :WIDTH] = _rotation(target) * SHARPNESS / scale**2
                attention.key.weight[rows, :WIDTH] = torch.eye(WIDTH)
                continue
            attention.query.bias[rows] = torch.tensor([20.0 * WIDTH**0.5, 0, 0, 0])
            if layer in SEP_LAYERS:  # where no such token is, the head attends to [SEP]
                attention.key.weight[rows.start, columns["[SEP]"]] = 0.5 / scale
            for name in target:
                attention.key.weight[rows.start, columns[name]] = 1 / scale
    return model, tokenizer


def _put_out_a_little(layers):
    generator = torch.Generator().manual_seed(0)
    for layer in layers:
        for outlet in (layer.attention.self.value, layer.attention.output.dense):
            outlet.weight.normal_(std=TINY, generator=generator)


def _waves(positions):
    waves = []
    for frequency in FREQUENCIES:
        angles = 2 * np.pi * frequency * positions / POSITIONS
        waves += [torch.cos(angles), torch.sin(angles)]
    return torch.stack(waves, dim=-1)


def _with_zero_mean(columns):
    return torch.cat([columns, -columns], dim=-1)


def _rotation(offset):
    """Make the matrix that takes the waves of a position to those of the one at an offset."""
    rotation = torch.zeros(WIDTH, WIDTH)
    for number, frequency in enumerate(FREQUENCIES):
        angle = torch.tensor(2 * np.pi * frequency * offset / POSITIONS)
        turn = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
        rotation[2 * number : 2 * number + 2, 2 * number : 2 * number + 2] = turn
    return rotation


def treebank(path):
    """Write sentences of Stanford Dependencies in which heads and offsets are right as in Table 1.

    Parameters
    ----------
    path : Path
        The CoNLL-U file.
    """
    rng = np.random.default_rng(0)
    sentences = []
    for relation in RELATIONS:
        published = paper_table1().loc[relation]
        n_right = round(WORDS_OF_A_RELATION * published["accuracy"] / 100)
        n_at_offset = round(WORDS_OF_A_RELATION * published["baseline"] / 100)
        wrong_offsets = [k for k in range(-5, 6) if k not in (0, published["baseline_offset"])]
        for number in range(WORDS_OF_A_RELATION):
            offset = int(published["baseline_offset"])
            if number >= n_at_offset:
                offset = wrong_offsets[number % len(wrong_offsets)]
            sentences.append(_sentence(relation, offset, is_right=number < n_right))
    order = rng.permutation(len(sentences))
    path.write_text("\n".join(sentences[index] for index in order))
    return path


def _sentence(relation, offset, *, is_right):
    """Write a sentence of 15 words with one word of the relation, in the middle."""
    dependent = 8
    parent = dependent + offset
    decoy = parent if is_right else (15 if parent != 15 else 14)
    lines = []
    for position in range(1, 16):
        word = FILLERS[position]
        if position == decoy:
            word = parent_word(relation)
        name, head = ("root", 0) if position == parent else ("dep", parent)
        if position == dependent:
            word, name = "dependent", relation
        lines.append(f"{position}\t{word}\t_\tX\t_\t_\t{head}\t{name}\t_\t_")
    return "\n".join(lines) + "\n"


def text(path, segments=30):
    """Write articles whose segments have 49 tokens: ln 49 is the paper's 3.89 nats."""
    paragraph = " ".join([*FILLERS, "dependent", ".", ","])
    articles = [f"{paragraph}\n\n{paragraph}" for _ in range(segments)]
    path.mkdir()
    for number, article in enumerate(articles):
        (path / f"{number}.txt").write_text(article)
    return path
