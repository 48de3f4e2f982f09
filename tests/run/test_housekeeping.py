"""``verify`` and ``cache``: damage is found, repaired and removed; stores are listed by state."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from store_tools import content, extract_small, flip

from helpers.__main__ import main
from helpers.cache import cached
from helpers.files import CHECKSUMS, build_folder
from helpers.store import format
from helpers.store.format import read_manifest


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
    assert main(["verify", "--repair"]) == 1
    output = capsys.readouterr().out
    assert output.count("  removed; the next run that needs it makes it again\n") == 2
    assert output.count(f"  not repaired: {stores[1] / 'manifest.json'}: ") == 1
    assert main(["cache", "--remove", stores[1].name]) == 0
    assert format.stores() == sorted([stores[0], stores[2]])
    assert main(["verify", stores[0].name]) == 1
    extract_small(encoder, own_cache, 8)
    assert content(stores[0]) == before
    assert main(["verify", stores[0].name]) == 0


def test_kept_tables_and_trained_models_are_verified(own_cache, capsys):
    def table():
        frame = pd.DataFrame({"x": [1]})
        return cached("t", lambda: frame, inputs={}, code={})

    table()
    derived_folders = [path for path in (own_cache / "derived").iterdir() if path.is_dir()]
    (derived,) = derived_folders
    trained = own_cache / "fine-tuned" / "m--task--1"

    def train(folder):
        for name in ("run.json", "final.safetensors"):
            (folder / name).write_text("of this run")

    build_folder(trained, train)
    assert main(["verify"]) == 0
    (derived / "t.csv").write_text("x\n2\n")
    flip(trained / "final.safetensors")
    (trained / "run.json").unlink()
    (trained / "unknown").touch()
    capsys.readouterr()
    assert main(["verify"]) == 1
    out = capsys.readouterr().out
    assert f"derived/{derived.name}: damaged\n  {derived / 't.csv'}: missing or changed\n" in out
    names = ("final.safetensors", "run.json", "unknown")
    lines = "".join(f"  {trained / name}: missing or changed\n" for name in names)
    assert f"fine-tuned/m--task--1: damaged\n{lines}" in out
    assert main(["verify", "--repair", f"derived/{derived.name}"]) == 0
    assert "  removed" in capsys.readouterr().out
    assert not derived.exists()
    assert table()["x"][0] == 1
    (trained / CHECKSUMS).unlink()
    assert main(["verify", "--repair"]) == 0
    assert not trained.exists()


def test_the_cache_tells_stores_apart(stores, capsys):
    (stores[2] / "manifest.json").write_text('{"format": 1}')
    replace(read_manifest(stores[1]), shards=()).write(stores[1])
    assert main(["cache"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    columns = "store corpus examples megabytes finished"
    assert header.split() == columns.split()
    (first,) = [row for row in rows if stores[0].name in row]
    assert first.split()[1:4] == ["toy-many", "8", "0"]
    assert first.endswith(" yes")
    assert next(row for row in rows if stores[1].name in row).endswith(" no")
    assert "see verify" in next(row for row in rows if stores[2].name in row)
    assert main(["cache", "--remove", stores[0].name, stores[2].name]) == 0
    assert format.stores() == [stores[1]]
