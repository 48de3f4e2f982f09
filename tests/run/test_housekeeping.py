"""``verify`` and ``cache``: damage is found, repaired and removed; stores are listed by state."""

from __future__ import annotations

from dataclasses import asdict, replace

import pandas as pd
import pytest
from store_tools import content, extract_small, flip

from helpers.__main__ import main
from helpers.cache import cached
from helpers.files import CHECKSUMS, write_checksums
from helpers.progress import OUTPUT_LIST_VARIABLE
from helpers.run.record import Record
from helpers.store import format
from helpers.store.format import read_manifest
from helpers.study import Study


@pytest.fixture
def stores(own_cache, encoder, tiny_encoder):
    return [
        extract_small(store_encoder, own_cache, count).folder
        for store_encoder, count in ((encoder, 8), (tiny_encoder("electra"), 4), (encoder, 4))
    ]


def test_verify_repair_removes_damaged_files_that_a_run_makes_again(
    stores, own_cache, encoder, capsys
):
    before = content(stores[0])
    flip(stores[0] / "shard-00000.safetensors")
    for path in (stores[1] / "manifest.json", stores[2] / "examples.jsonl"):
        path.write_bytes(path.read_bytes()[:50])
    assert main(["verify"]) == 1
    capsys.readouterr()
    assert main(["verify", "--repair"]) == 0
    output = capsys.readouterr().out
    assert output.count(": removed; the next run that needs the store makes it again") == 2
    assert output.count("  manifest unreadable: ") == 1
    assert format.stores() == sorted([stores[0], stores[2]])
    assert main(["verify", stores[0].name]) == 1
    extract_small(encoder, own_cache, 8)
    assert content(stores[0]) == before
    assert main(["verify", stores[0].name]) == 0


def test_kept_tables_and_trained_models_are_verified(own_cache, capsys):
    def table():
        frame = pd.DataFrame({"x": [1]})
        return cached("t", lambda: frame, inputs={}, module="helpers.data.records")

    table()
    derived_folders = [path for path in (own_cache / "derived").iterdir() if path.is_dir()]
    (derived,) = derived_folders
    trained = own_cache / "fine-tuned" / "m--task--1"
    trained.mkdir(parents=True)
    for name in ("run.json", "final.safetensors"):
        (trained / name).write_text("of this run")
    write_checksums(trained)
    assert main(["verify"]) == 0
    (derived / "t.csv").write_text("x\n2\n")
    flip(trained / "final.safetensors")
    (trained / "run.json").unlink()
    (trained / "unknown").touch()
    capsys.readouterr()
    assert main(["verify"]) == 1
    out = capsys.readouterr().out
    assert f"derived/{derived.name}: damaged\n  {derived / 't.csv'}: changed\n" in out
    problems = {"final.safetensors": "changed", "run.json": "missing", "unknown": "changed"}
    lines = "".join(f"  {trained / name}: {problem}\n" for name, problem in problems.items())
    assert f"fine-tuned/m--task--1: damaged\n{lines}" in out
    assert main(["verify", "--repair", f"derived/{derived.name}"]) == 0
    assert "removed: it is made again when it is needed" in capsys.readouterr().out
    assert not derived.exists()
    assert table()["x"][0] == 1
    (trained / CHECKSUMS).unlink()
    assert main(["verify", "--repair"]) == 0
    assert not trained.exists()


def test_a_store_of_other_code_is_told_and_can_be_accepted(
    own_cache, tiny_folder, capsys, monkeypatch, tmp_path
):
    text = tmp_path / "text.txt"
    notes = tmp_path / "notes"
    text.write_text("\n\n".join(f"The cat sat.\nThe dog watched {n}." for n in range(9)))
    study = Study(model=str(tiny_folder("bert")), text=str(text), max_tokens=32, name="own")
    with monkeypatch.context() as before:
        before.setattr(format, "FILLER", "helpers.store.examples")
        old = study.segment_store().folder
    manifest = read_manifest(old)
    shards = content(old)["shard-00000.safetensors"]
    assert main(["cache"]) == 0
    assert f"{old.name}" in capsys.readouterr().out.partition("made by other code")[0]
    line = f"{old.name}: made by other code: extracted again; 'python -m helpers cache accept "
    new = study.segment_store().folder
    assert capsys.readouterr().err == f"{line}{old.name}' keeps it\n"
    flip(old / "shard-00000.safetensors")
    assert main(["verify", "--repair", old.name]) == 1
    assert (
        f"made by other code than is here; after 'python -m helpers cache --remove {old.name}"
        in capsys.readouterr().out
    )
    flip(old / "shard-00000.safetensors")
    assert main(["cache", "accept", old.name]) == 2
    assert f"{new.name}: extracted already" in capsys.readouterr().err
    assert main(["cache", "--remove", new.name]) == 0
    assert main(["cache", "accept", old.name]) == 0
    assert f"{old.name}: accepted, now {new.name}\n" in capsys.readouterr().out
    assert format.stores() == [new] and content(new)["shard-00000.safetensors"] == shards
    assert main(["cache", "accept", new.name]) == 2
    assert "made by today's code" in capsys.readouterr().err
    monkeypatch.setenv(OUTPUT_LIST_VARIABLE, str(notes))
    store = Study(**asdict(study.settings)).segment_store()
    assert not capsys.readouterr().err
    assert store.manifest.accepted == manifest.spec.code
    record = Record(study.results, {})
    record.note("01", notes)
    assert record.notebooks == {"01": {"tables": [], "figures": [], "accepted": [new.name]}}


def test_the_cache_tells_stores_apart(stores, capsys):
    (stores[2] / "manifest.json").write_text('{"format": 1}')
    replace(read_manifest(stores[1]), shards=()).write(stores[1])
    assert main(["cache"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    columns = "store corpus examples megabytes written finished"
    assert header.split() == columns.split()
    today = format.date(stores[0])
    (first,) = [row for row in rows if stores[0].name in row]
    assert first.split()[1:5] == ["toy-many", "8", "0", today]
    assert first.endswith(" yes")
    assert next(row for row in rows if stores[1].name in row).endswith(" no")
    assert "see verify" in next(row for row in rows if stores[2].name in row)
    assert main(["cache", "--remove", stores[0].name, stores[2].name]) == 0
    assert format.stores() == [stores[1]]
