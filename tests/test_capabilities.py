"""Files, models and maps that users bring, by the command line and public names only.

Most cases are rebuilt from public reports.  A file is read in full or refused in one line that
names it; a model gives the maps of plain transformers.
"""

import json

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
import transformers as hf
import zoo
from notebook_tools import executed
from tolerances import weights_error
from toy_corpora import write

import helpers
from helpers.__main__ import main
from helpers.metrics import rows_of_model

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
    """Run a dry run on a tiny model; return its exit status, output and errors."""
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
        ("--treebank", "blank.conllu", TREES.replace("\n\n", "\n\n\n"), SENTENCES),
        ("--treebank", "my Bäume 'x'.conllu", TREES.rstrip("\n"), SENTENCES),
        ("--treebank", "private.conllu", TREES.replace("Dogs", "\ue001", 3), SENTENCES),
        ("--coref", "half.txt", "".join(map((STORY + OTHER_STORY).format, *[range(9)] * 2)), 9),
        ("--pairs", "contacts.jsonl", pairs_of(SENTENCES), SENTENCES),
        ("--text", "markup.txt", "<p>The cat sat on the <b>mat</b>.</p>\n\n" * 60, ""),
        ("--text", "code.txt", "def add(x, y):\n    return x + y\n\n" * 60, ""),
        (
            "--text",
            "scripts.txt",
            "👩‍👩‍👧 The cat 😀 sat.\n\nالقطة جلست.\n\n我喜欢喝咖啡。\n\n" * 30,
            "",
        ),
    ],
)
def test_run_reads_files_in_full(option, name, content, examples, dry_run, tmp_path):
    status, output, error = dry_run(option, write(tmp_path, name, content), NOTEBOOK[option])
    assert (status, error) == (0, "") or option == "--text"
    assert f"{examples} examples" in output


@pytest.mark.parametrize(
    ("option", "name", "content", "line"),
    [
        ("--treebank", "no_blank.conllu", TREE * SENTENCES, 3),
        ("--treebank", "digit.conllu", f"{TREES}{TREE}\n".replace("\t2\tnsubj", "\t٢\tnsubj"), 1),
        ("--treebank", "only_comments.conllu", "# nothing\n" * 9, None),
        ("--treebank", "empty.conllu", "", None),
        ("--treebank", "withheld.conllu", TREES.replace("Dogs", "_").replace("bark", "_"), None),
        ("--coref", "unmarked.txt", OTHER_STORY * 9, None),
        ("--text", "table.csv.txt", f'id,text,label\n0,"{PROSE.strip()}",1\n', 1),
        ("--text", "titles.txt", "One title\n", None),
        ("--text", "wiki_01.txt", '<doc id="1" url="u" title="Cat">\nCat\n\n</doc>\n' * 9, None),
        ("--pairs", "no_pairs.jsonl", json.dumps({"words": ["a", "b"], "pairs": []}) + "\n", None),
    ],
)
def test_run_refuses_files_of_no_use_in_a_line(option, name, content, line, dry_run, tmp_path):
    path = write(tmp_path, name, content)
    status, _, error = dry_run(option, path, NOTEBOOK[option])
    assert status == 2
    assert error.startswith("error: ") and error.count("\n") == 1
    assert (f"{path}:{line}:" if line else str(path)) in error


GROUPED = {**zoo.SIZES, **zoo.GROUPED, "head_dim": 6, "pad_token_id": 0}
LLAMA = "LlamaForCausalLM LlamaConfig"
BEGINNING = "<|endoftext|>"  # the token that begins every text of `zoo.begun_byte_pairs`
LENGTHS = ("", " on the mat", " on the mat, and the old dog of the house watched it")


def save_family(folder, names, vocabulary, sizes):
    torch.manual_seed(0)
    model_class, config_class = (getattr(hf, name) for name in names.split())
    tokenizer = vocabulary()
    model = model_class(config_class(vocab_size=len(tokenizer), **sizes))
    return tiny_models.save(folder, tiny_models.spread(model, factor=6.0), tokenizer)


def study_of(folder, tmp_path, **settings):
    """Make a study of a model on segments of several lengths, which are padded in a batch."""
    paragraphs = [f"The cat sat{end}.\n\nThe dog watched it.\n\n" for end in LENGTHS * 3]
    text = write(tmp_path, "text.txt", "".join(paragraphs))
    return helpers.Study(
        model=str(folder), text=str(text), max_tokens=60, device="cpu", seeds=1, **settings
    )


def plain_maps(folder, ids, **inputs):
    """Compute the maps of one text with transformers alone: [layer, head, query, key]."""
    model = hf.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        outputs = model(input_ids=torch.tensor([ids]), **inputs, output_attentions=True)
    return torch.cat(outputs.attentions).numpy()


def assert_maps_of_transformers(folder, tmp_path):
    """Compare the maps of a study, which are stored in half precision, with plain passes."""
    store = study_of(folder, tmp_path).segment_store()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    assert len({len(example.tokens) for example in store}) == len(LENGTHS)
    for example in store:
        ids = tokenizer.convert_tokens_to_ids(example.tokens)
        inputs = {}
        if "token_type_ids" in tokenizer.model_input_names and tokenizer.sep_token:
            is_end = torch.tensor([ids]) == tokenizer.sep_token_id
            inputs["token_type_ids"] = is_end.cumsum(dim=1) - is_end.long()  # of two paragraphs
        expected = plain_maps(folder, ids, **inputs)
        error = weights_error(expected)
        np.testing.assert_allclose(example.attention, expected, rtol=2**-10, atol=error)
        assert expected.std() * len(ids) > 0.1, "nearly uniform maps would hide mistakes"


@pytest.mark.parametrize("change", [{"padding_side": "left"}, {"add_bos_token": True}])
def test_store_of_any_tokenizer_has_one_beginning_and_no_padding(change, figures, tmp_path):
    folder = save_family(tmp_path / "llama", LLAMA, zoo.begun_byte_pairs, GROUPED)
    tiny_models.edit(folder / "tokenizer_config.json", **change)
    assert_maps_of_transformers(folder, tmp_path)
    for example in study_of(folder, tmp_path).segment_store():
        assert example.tokens[0] == BEGINNING and example.tokens.count(BEGINNING) == 1


def test_run_refuses_a_length_that_no_setting_names(figures, tmp_path, capsys):
    sizes = {"d_model": 24, "n_heads": 4, "n_layers": 2, "expansion_ratio": 2, "max_seq_len": 32}
    folder = save_family(tmp_path / "mpt", "MptForCausalLM MptConfig", zoo.plain_byte_pairs, sizes)
    text = write(tmp_path, "cats.txt", "".join(map(ARTICLE.format, range(3))))
    options = ["--model", str(folder), "--text", str(text), "--max-tokens", "60"]
    assert main(["run", "--dry-run", "--only", "01", *options]) == 2
    assert "it takes no input of 60 tokens" in capsys.readouterr().err


def test_head_table_of_a_hybrid_has_the_numbers_of_its_layers(figures, tmp_path):
    types = ["conv", "full_attention"] * 2
    sizes = {**GROUPED, "layer_types": types, "num_hidden_layers": 4}
    folder = save_family(tmp_path / "h", "Lfm2ForCausalLM Lfm2Config", zoo.plain_byte_pairs, sizes)
    study = study_of(folder, tmp_path)
    store = study.segment_store()
    assert_maps_of_transformers(folder, tmp_path)
    sums = helpers.metrics.surface.sums(store)
    table = helpers.metrics.surface.head_table(sums, ["previous"])
    assert table["layer"].tolist() == [2] * 4 + [4] * 4
    assert any("own numbers: 2, 4." in note for note in study.notes)
    seed = next(seed for seed in range(99) if np.random.default_rng(seed).permutation(2)[0])
    layers = study.encoder.model.base_model.layers
    reordered = study.encoder.with_reordered_layers(seed).model.base_model.layers
    weights = [part.feed_forward.w1.weight.data_ptr() for part in layers]
    assert [part.feed_forward.w1.weight.data_ptr() for part in reordered] == [
        weights[place] for place in (0, 3, 2, 1)
    ]


def test_run_refuses_attention_in_chunks_in_a_line(figures, tmp_path, capsys):
    sizes = {"attention_chunk_size": 8, "moe_layers": [], "intermediate_size_mlp": 32}
    sizes |= {**GROUPED, "head_dim": 8, "layer_types": ["chunked_attention", "full_attention"]}
    names = "Llama4ForCausalLM Llama4TextConfig"
    folder = save_family(tmp_path / "chunks", names, zoo.begun_byte_pairs, sizes)
    assert main(["run", "--dry-run", "--only", "01", "--model", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert str(folder) in error and "layer 1 " in error


def word_map(token_map, word_ids):
    """Add the weights to the tokens of a word up, and average those from its tokens."""
    groups = np.array([-1 - i if word is None else word for i, word in enumerate(word_ids)])
    order = dict.fromkeys(groups)
    joined = np.stack([token_map[..., groups == word].sum(-1) for word in order], -1)
    return np.stack([joined[..., groups == word, :].mean(-2) for word in order], -2)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_store_of_a_treebank_has_the_maps_of_running_text(family, figures, tiny_folder, tmp_path):
    """Given one by one to a vocabulary of bytes, words would lose the spaces before them."""
    treebank = write(tmp_path, "small.conllu", TREES.replace("Dogs", "Unbelievably"))
    study = study_of(tiny_folder(family), tmp_path, treebank=str(treebank))
    example = study.treebank_store()[0]
    table = pd.DataFrame(example.attention[1, 2], index=example.tokens, columns=example.tokens)
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder(family))
    encoding = tokenizer(" Unbelievably bark")
    ids, words = encoding["input_ids"], encoding.word_ids()
    if family == "gpt2":  # whose tokenizer does not add the token that begins a text
        ids, words = [tokenizer.bos_token_id, *ids], [None, *words]
    assert len(ids) > len(table)
    expected = word_map(plain_maps(tiny_folder(family), ids)[1, 2], words)
    np.testing.assert_allclose(table, expected, rtol=2**-10, atol=weights_error(expected))
    assert table.loc["bark", "Unbelievably"] > 0


def test_notebook_runs_in_another_folder(figures, tiny_folder, tmp_path, monkeypatch):
    """A relative text is one of the working folder; results and maps go to the usual folders."""
    monkeypatch.setenv("ATTENTION_PROFILE", "quick")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    write(folder, "cats.txt", "\n\n".join(tiny_models.TEXT * 6))
    monkeypatch.chdir(folder)
    model = str(tiny_folder("bert"))
    executed("03", model=model, text="cats.txt", name="mine", device="cpu", max_tokens=48)
    table = pd.read_csv(figures.parent / "build" / "mine" / "tables" / "entropy.csv")
    assert len(rows_of_model(table)) == 12
    assert list((figures.parent / "cache").glob("*/manifest.json"))
    assert {path.name for path in folder.iterdir()} == {"cats.txt"}
