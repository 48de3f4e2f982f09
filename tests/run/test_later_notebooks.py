"""The lessons on later papers, to their end on a tiny decoder; other tests run them on encoders."""

import pandas as pd
import pytest
from notebook_tools import executed
from toy_corpora import conllu, write

TASK_WORDS = {"1": ("good", "warm", "new"), "0": ("bad", "cold", "old")}
PARAGRAPH = "a cat sat here and the dog ran over the mat to see it . "
SENTENCES = (
    "A/2/det cat/3/nsubj saw/0/root the/5/det dog/3/dobj ./3/punct",
    "The/2/det dog/3/nsubj saw/0/root a/5/det new/6/amod mat/3/dobj today/3/tmod ./3/punct",
)
LATER = ("07", "08", "09", "10", "11")


def write_task(path, rows):
    """Write sentences with a label that a word gives away, in the layout of SST-2."""
    lines = ["sentence\tlabel"]
    for row in range(rows):
        label = str(row % 2)
        adjective = TASK_WORDS[label][row % 3]
        lines.append(f"the cat is {adjective} , the dog is number {row} .\t{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def corpora(tmp_path):
    """Settings that name small corpora: a text, a treebank and a task."""
    text = tmp_path / "cats.txt"
    text.write_text("\n".join([PARAGRAPH * 4, PARAGRAPH[2:] * 4] * 6))
    sentences = []
    for pattern in SENTENCES:
        words = enumerate(pattern.split(), 1)
        sentences.append([(number, *word.split("/")) for number, word in words])
    treebank = write(tmp_path, "en_cats.conllu", conllu(*sentences, times=40))
    train = write_task(tmp_path / "train.tsv", rows=36)
    test = write_task(tmp_path / "test.tsv", rows=24)
    return {"text": str(text), "treebank": str(treebank), "task": f"{train},{test}"}


@pytest.mark.parametrize("number", LATER)
def test_a_lesson_ends_on_a_decoder(number, corpora, tiny_folder, figures, monkeypatch, capsys):
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")
    # Each permutation passes several checks of types; p-values of random weights mean nothing.
    monkeypatch.setattr("beyond.papers.accuracy_and_function.centred_ranks.PERMUTATIONS", 100)
    if number not in ("07", "08"):
        del corpora["task"]
    if number == "10":
        corpora["long_text"] = corpora["text"]
    executed(
        number, model=str(tiny_folder("gpt2")), **corpora, max_tokens=64, device="cpu", name="tiny"
    )
    tables = figures.parent / "build" / "tiny-later" / "tables"
    assert all(len(pd.read_csv(path)) for path in tables.glob("*.csv"))
    assert capsys.readouterr().out.count("Not written yet") == 3  # exercises
