"""What users bring, by the command line and public names only: files, models and maps of others.

Most cases are rebuilt from public reports.  A file is read in full or refused in one line that
names it; a model gives the maps of plain transformers.
"""

import json

import numpy as np
import pytest
import tiny_models
import torch
import transformers as hf
import zoo
from tolerances import weights_error
from toy_corpora import write

import helpers
from helpers.__main__ import main
from helpers.errors import InputError

SENTENCES = 40
COLUMNS = "{}\t{}\t{}\tNOUN\t_\t_\t{}\t{}\t_\t_\n"
TREE = COLUMNS.format(1, "Dogs", "dog", 2, "nsubj") + COLUMNS.format(2, "bark", "bark", 0, "root")
TREES = f"{TREE}\n" * SENTENCES
PROSE = "The cat sat on the mat. The old dog watched it from the door of the house.\n\n"
ARTICLE = f'<doc id="{{0}}" url="u" title="Cat {{0}}">\nCat {{0}}\n\n{PROSE}{PROSE}{PROSE}</doc>\n'
STORY = "# story {}\n[Ann]1 lost [her]1 ring . [It]2 fell .\n\n"
OTHER_STORY = "# plain {}\nIt rained all day .\n\n"
PAIR = {"words": ["MKTA", "YIAK", "QRQI"], "pairs": [[0, 2, "contact"]]}


@pytest.fixture
def dry_run(figures, tiny_folder, tmp_path, capsys, monkeypatch):
    """Say what a run on a tiny model would read: exit status, output, errors."""
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)

    def run(option, path, only):
        model = str(tiny_folder("bert"))
        options = ["--model", model, "--device", "cpu", "--max-tokens", "60", option, str(path)]
        if option == "--coref":
            options += ["--treebank", str(write(tmp_path, "small.conllu", TREES))]
        status = main(["run", "--dry-run", "--only", only, "--minimum-count", "5", *options])
        return status, *capsys.readouterr()

    return run


NOTEBOOK = {"--treebank": "04", "--text": "01", "--coref": "04", "--pairs": "04"}


def pairs_of(n):
    return "".join(json.dumps({**PAIR, "document": f"d{i % 10}"}) + "\n" for i in range(n))


@pytest.mark.parametrize(
    ("option", "name", "content", "examples"),
    [
        ("--treebank", "comments.conllu", f"# text = Dogs bark\n{TREE}" * SENTENCES, SENTENCES),
        ("--treebank", "blank.conllu", TREES.replace("\n\n", "\n\n\n"), SENTENCES),
        ("--treebank", "windows.conllu", "\ufeff" + TREES.replace("\n", "\r\n"), SENTENCES),
        ("--treebank", "cut.conllu", TREES.rstrip("\n"), SENTENCES),
        ("--treebank", "private.conllu", TREES.replace("Dogs", "\ue001", 3), SENTENCES),
        ("--treebank", "comment.conllx", f"# a note\n{TREES}", SENTENCES),
        ("--treebank", "my Bäume 'x'.conllu", TREES, SENTENCES),
        ("--coref", "half.txt", "".join(map((STORY + OTHER_STORY).format, *[range(9)] * 2)), 9),
        ("--pairs", "contacts.jsonl", pairs_of(SENTENCES), SENTENCES),
    ],
)
def test_files_with_annotation_are_read_in_full(option, name, content, examples, dry_run, tmp_path):
    path = write(tmp_path, name, content)
    status, output, error = dry_run(option, path, NOTEBOOK[option])
    assert (status, error) == (0, "")
    assert f": {examples} examples" in output


@pytest.mark.parametrize(
    "content",
    [
        "".join(map(ARTICLE.format, range(30))),
        "".join(f" = Cat {number} = \n\n{PROSE * 3}" for number in range(30)),
        "<p>The cat sat on the <b>mat</b>.</p>\n\n" * 60,
        "def add(x, y):\n    return x + y\n\n" * 60,
        "👩‍👩‍👧 The cat 😀 sat.\n\nالقطة جلست على السجادة.\n\n我喜欢在早上喝咖啡。\n\n" * 30,
    ],
    ids=["WikiExtractor", "WikiText", "markup", "source code", "scripts"],
)
def test_text_of_any_source_is_read(content, dry_run, tmp_path):
    status, output, _ = dry_run("--text", write(tmp_path, "wiki_00.txt", content), "01")
    assert status == 0
    assert " examples" in output


CIRCLE = TREE.replace("\t0\troot", "\t1\troot")


@pytest.mark.parametrize(
    ("option", "name", "content", "line"),
    [
        ("--treebank", "no_blank.conllu", TREE * SENTENCES, 3),
        ("--treebank", "circle.conllu", f"{TREES}{CIRCLE}\n", 3 * SENTENCES + 1),
        ("--treebank", "digit.conllu", f"{TREES}{TREE}\n".replace("\t2\tnsubj", "\t٢\tnsubj"), 1),
        ("--treebank", "only_comments.conllu", "# nothing\n" * 9, None),
        ("--treebank", "empty.conllu", "", None),
        ("--treebank", "withheld.conllu", TREES.replace("Dogs", "_").replace("bark", "_"), None),
        ("--treebank", "trees.json", json.dumps([{"words": ["a"]}]), 1),
        ("--coref", "preco.jsonl", json.dumps({"sentences": [], "mention_clusters": []}), 1),
        ("--coref", "unmarked.txt", OTHER_STORY * 9, None),
        ("--text", "wiki.json.txt", f"{json.dumps({'text': PROSE})}\n" * 9, 1),
        ("--text", "table.csv.txt", f'id,text,label\n0,"{PROSE.strip()}",1\n', 1),
        ("--text", "page.html.txt", f"<!DOCTYPE html>\n<html><p>{PROSE}</p></html>\n", 1),
        ("--text", "titles.txt", "One title\n", None),
        ("--pairs", "no_pairs.jsonl", json.dumps({"words": ["a", "b"], "pairs": []}) + "\n", None),
    ],
)
def test_files_of_no_use_are_refused_in_a_line(option, name, content, line, dry_run, tmp_path):
    path = write(tmp_path, name, content)
    status, _, error = dry_run(option, path, NOTEBOOK[option])
    assert status == 2
    assert error.startswith("error: ") and error.count("\n") == 1
    assert (f"{path}:{line}:" if line else str(path)) in error


def maps(*shape):
    return np.full(shape, 1 / shape[-1])


@pytest.mark.parametrize(
    ("attention", "tokens"),
    [
        (maps(2, 2, 8, 8), list("abcdef")),  # padding is in the maps
        (((maps(1, 2, 4, 4),) * 2, (maps(1, 2, 1, 5),) * 2), list("abcd")),  # of ``generate``
        (2 * maps(2, 2, 4, 4), list("abcd")),  # no distributions
    ],
)
def test_maps_of_another_shape_are_refused_in_a_line(attention, tokens):
    with pytest.raises(InputError) as error:
        helpers.open_maps(attention, tokens)
    assert "\n" not in str(error.value)


# Families that are not among those of the documentation.
FAMILIES = {
    "SmolLM3": "SmolLM3ForCausalLM SmolLM3Config",
    "OLMo 2": "Olmo2ForCausalLM Olmo2Config",
    "OLMo 3": "Olmo3ForCausalLM Olmo3Config",
    "Cohere 2": "Cohere2ForCausalLM Cohere2Config",
    "Granite": "GraniteForCausalLM GraniteConfig",
    "Helium": "HeliumForCausalLM HeliumConfig",
    "GLM-4": "Glm4ForCausalLM Glm4Config",
    "StarCoder2": "Starcoder2ForCausalLM Starcoder2Config",
}
DECODER_SIZES = {**zoo.GROUPED, "head_dim": 6, "pad_token_id": 0}
ENCODERS = {
    "MegatronBERT": "MegatronBertForMaskedLM MegatronBertConfig",
    "ERNIE": "ErnieForMaskedLM ErnieConfig",
    "Data2Vec": "Data2VecTextForMaskedLM Data2VecTextConfig",
}


def save_family(folder, names, vocabulary, **sizes):
    torch.manual_seed(0)
    model, tokenizer = zoo.model_of(names, vocabulary, **sizes)()
    return tiny_models.save(folder, tiny_models.spread(model, factor=6.0), tokenizer)


def assert_maps_of_transformers(folder, tmp_path):
    """Compare the maps of a study, which are stored in half precision, with a plain pass."""
    text = write(tmp_path, "text.txt", "The cat sat.\n\nThe dog watched it.\n\n" * 8)
    study = helpers.Study(
        model=str(folder), text=str(text), segments=4, max_tokens=60, device="cpu"
    )
    store = study.segment_store()
    model = hf.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    example = store[0]
    inputs = {"input_ids": torch.tensor([tokenizer.convert_tokens_to_ids(example.tokens)])}
    if tokenizer.sep_token:
        is_end = inputs["input_ids"] == tokenizer.sep_token_id
        inputs["token_type_ids"] = is_end.cumsum(dim=1) - is_end.long()  # of two paragraphs
    with torch.no_grad():
        expected = torch.cat(model(**inputs, output_attentions=True).attentions).numpy()
    error = weights_error(expected)
    np.testing.assert_allclose(example.attention, expected, rtol=2**-10, atol=error)
    assert expected.std() > 0.01


@pytest.mark.parametrize("name", FAMILIES)
def test_a_decoder_of_any_family_has_the_maps_of_transformers(name, figures, tmp_path):
    folder = save_family(tmp_path / name, FAMILIES[name], zoo.begun_byte_pairs, **DECODER_SIZES)
    assert_maps_of_transformers(folder, tmp_path)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_of_any_family_has_the_maps_of_transformers(name, figures, tmp_path):
    folder = save_family(tmp_path / name, ENCODERS[name], zoo.word_pieces, **zoo.SIZES)
    assert_maps_of_transformers(folder, tmp_path)
