"""What is wrong with what the user gave is said before any notebook starts."""

import pytest

from helpers.errors import InputError
from helpers.run.checks import check
from helpers.study import Study


def refused(tiny_folder, **settings):
    with pytest.raises(InputError) as error:
        check(
            Study(
                **{"model": str(tiny_folder("bert")), "device": "cpu", "max_tokens": 48} | settings
            )
        )
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_good_run_passes(tiny_folder):
    check(Study(model=str(tiny_folder("bert")), device="cpu", max_tokens=48))


def test_models(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)  # which has a limit for --max-tokens
    assert "no-such-model" in refused(tiny_folder, model="./no-such-model")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tiny_folder, model=str(tmp_path / "empty"))
    assert "float64" in refused(tiny_folder, dtype="float64")
    assert "--device cpu" in refused(tiny_folder, device="tpu")
    assert "--max-tokens 100000" in refused(tiny_folder, max_tokens=100_000)


@pytest.mark.parametrize(
    ("content", "message"),
    [("one column\n", "column"), ("a\tx\nb\tx\n", "1 labels in"), ("", "no example")],
)
def test_tasks_are_read(tiny_folder, tmp_path, content, message):
    (tmp_path / "train.tsv").write_text(content)
    (tmp_path / "test.tsv").write_text("a\tx\nb\ty\n")
    error = refused(tiny_folder, task=f"{tmp_path / 'train.tsv'},{tmp_path / 'test.tsv'}")
    assert message in error and "train.tsv" in error
    assert "expected TRAIN.tsv,TEST.tsv" in refused(tiny_folder, task=str(tmp_path / "test.tsv"))


def test_annotations_are_read(tiny_folder, tmp_path):
    path = tmp_path / "documents.txt"
    path.write_text("[Marie Curie]1 said [she]1 was tired.\n")
    assert "text before the first header" in refused(tiny_folder, coref=str(path))
    path.write_text("# curie biography\n[Marie Curie]1 said [she]1 was tired .\n")
    check(Study(model=str(tiny_folder("bert")), device="cpu", max_tokens=48, coref=str(path)))
