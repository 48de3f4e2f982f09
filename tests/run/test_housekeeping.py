"""``verify`` and ``cache``: damage is found, repaired and removed; stores are listed by state."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import pytest
from store_tools import content, extract_small, flip

from helpers.__main__ import main
from helpers.cache import cached
from helpers.files import CHECKSUMS, write_checksums
from helpers.progress import OUTPUT_LIST_VARIABLE
from helpers.run.record import Record
from helpers.store import format
from helpers.store.format import note_use, read_manifest
from helpers.study import Study


@pytest.fixture
def stores(own_cache, encoder, tiny_encoder):
    return [
        extract_small(store_encoder, own_cache, count).folder
        for store_encoder, count in ((encoder, 8), (tiny_encoder("electra"), 4), (encoder, 4))
    ]


def test_repair_needs_the_place_of_a_local_model_and_goes_on(
    stores, tiny_folder, capsys, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = [content(folder) for folder in stores]
    for folder in stores:
        flip(folder / "shard-00000.safetensors")
    assert main(["verify", "--repair"]) == 1
    lines = capsys.readouterr().out.splitlines()
    for name in ("bert", "electra", "bert"):
        start = f"  not repaired: model {name!r}: "
        refusals = [line for line in lines if line.startswith(start)]
        assert refusals
        for refusal in refusals:
            assert refusal.endswith("; say where it is with --model PATH")
    assert main(["verify", "--repair", "--model", str(tiny_folder("bert"))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum("shard-00000.safetensors: extracted again" in line for line in lines) == 2
    (refusal,) = [line for line in lines if "not repaired" in line]
    assert "made with another model than" in refusal and "'name': 'electra'" in refusal
    assert main(["verify", "--repair", "--model", str(tiny_folder("electra"))]) == 0
    assert [content(folder) for folder in stores] == before
    assert main(["verify"]) == 0


def test_verify_repairs_lists_and_manifests_without_a_model(stores, own_cache, encoder, capsys):
    before = content(stores[0])
    damaged = [
        stores[0] / "examples.jsonl",
        stores[1] / "manifest.json",
        stores[2] / "examples.jsonl",
    ]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:50])
    assert main(["verify"]) == 1
    assert main(["verify", "--repair"]) == 0
    output = capsys.readouterr().out
    assert output.count("  examples.jsonl damaged: ") == 2
    assert output.count("  manifest unreadable: ") == 1
    assert format.stores() == sorted([stores[0], stores[2]])
    extract_small(encoder, own_cache, 8)
    assert content(stores[0]) == before
    assert main(["verify", stores[0].name]) == 0


def test_verify_repairs_a_list_again_until_a_run_has_written_it(stores):
    (stores[0] / "examples.jsonl").unlink()
    assert main(["verify", "--repair", stores[0].name]) == 0
    assert main(["verify", "--repair", stores[0].name]) == 0
    assert main(["verify", stores[0].name]) == 1


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
    assert main(["verify", "--repair", "--model", study.settings.model, old.name]) == 1
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


def test_the_cache_tells_stores_apart(own_cache, stores, capsys):
    note_use(stores[0], "minilm--my-text")
    (stores[2] / "manifest.json").write_text('{"format": 1}')
    (stores[1] / "manifest.json").rename(stores[1] / "unfinished.json")
    assert main(["cache"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    columns = "store corpus examples megabytes written finished last run"
    assert header.split() == columns.split()
    today = format.date(stores[0])
    (first,) = [row for row in rows if stores[0].name in row]
    assert first.split()[1:5] == ["toy-many", "8", "0", today]
    assert f"minilm--my-text ({today})" in first
    assert " yes " in first
    assert " no " in next(row for row in rows if stores[1].name in row)
    assert "see verify" in next(row for row in rows if stores[2].name in row)
    assert main(["cache", "--remove", stores[0].name, stores[2].name]) == 0
    assert format.stores() == [stores[1]]
    assert not list((own_cache / "used").iterdir())
