"""Inputs of the user are read before a run starts; what is wrong is one line."""

import pytest

from helpers.errors import InputError
from helpers.run.check import check_inputs
from helpers.study import Study


def refused(tiny_folder, **settings):
    usual = {"model": str(tiny_folder("bert")), "device": "cpu", "max_tokens": 48}
    with pytest.raises(InputError) as error:
        list(check_inputs(Study(**{**usual, **settings}), []))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)  # which has a limit for --max-tokens
    assert "no-such-model" in refused(tiny_folder, model="./no-such-model")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tiny_folder, model=str(tmp_path / "empty"))
    assert "--device cpu" in refused(tiny_folder, device="tpu")
    assert "--max-tokens 100000" in refused(tiny_folder, max_tokens=100_000)


ROW = "{}\t{}\t_\tX\t_\t_\t{}\tdep\t_\t_\n"
TREE = ROW.format(1, "Go", 0) + ROW.format(2, "on", 1) + "\n"
COMMENTS = 50 * "## A comment.\n"
BRACKETS = "# a story\n[Ann]1 lost [her]1 ring.\n"


@pytest.mark.parametrize(
    ("setting", "name", "content", "fault"),
    [
        ("text", "empty.txt", "", "paragraphs"),
        ("treebank", "empty.conllu", "", "no sentence; expected"),
        ("treebank", "columns.conllu", 50 * TREE + "1\tGo\n", "151: expected 10 columns, found 2"),
        ("treebank", "order.conllu", 50 * TREE + ROW.format(2, "on", 0), "151: expected word 1"),
        ("treebank", "roots.conllu", TREE + TREE.replace("\t1\tdep", "\t0\tdep"), "5: a second"),
        ("coref", "open.txt", COMMENTS + BRACKETS.replace("]1 ring", " ring"), "52: '['"),
        ("coref", "none.txt", "# a story\nIt rained.\n", "coreference annotation"),
    ],
)  # fmt: skip
def test_check_reads_files_of_the_user(setting, name, content, fault, tiny_folder, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    study = Study(model=str(tiny_folder("bert")), max_tokens=48, **{setting: str(path)})
    declared = {"text": "segments", "treebank": "sentences", "coref": "coref"}[setting]
    with pytest.raises(InputError) as error:
        list(check_inputs(study, [declared]))
    assert str(error.value).startswith(f"{path}:") and fault in str(error.value)
    assert "\n" not in str(error.value)
