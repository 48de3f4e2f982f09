"""The built-in models: five packages that are joined, and a GGUF file that is dequantised, once."""

import io
import shutil
import zipfile
from functools import cache, partial
from importlib.metadata import Distribution, PackageNotFoundError
from importlib.util import find_spec

import pytest
import torch
from store_tools import flip
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.errors import ModelError
from helpers.files import sha256
from helpers.model import checkpoint
from helpers.model.checkpoint import BUILT_IN
from helpers.model.loading import load_model, model_folder
from helpers.study import WEIGHTS_NOTES, Study

TEXT = "The river rose in 2015, and the old mill by the bridge did not survive the winter."


def install(site, package, name, content):
    """Install a package as pip does: its file and its dist-info."""
    info = site / f"{package.replace('-', '_')}-0.0.1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    (info / "RECORD").write_text(f"{package}/{name},,\n")
    (site / package).mkdir(exist_ok=True)
    (site / package / name).write_bytes(content)


def files_in(site, name):
    """`importlib.metadata.files` of one folder: the real packages may be installed."""
    distributions = list(Distribution.discover(name=name, path=[str(site)]))
    if not distributions:
        raise PackageNotFoundError(name)
    return distributions[0].files


@pytest.fixture
def site(tmp_path, monkeypatch, own_cache):
    """A folder of packages, and nothing else that is installed."""
    monkeypatch.setattr(checkpoint, "files", partial(files_in, tmp_path / "site"))
    return tmp_path / "site"


@pytest.fixture
def mpnet_site(site, tiny_folder, monkeypatch):
    """Five packages that hold a tiny model, in a zip with names that must not be trusted."""
    folder = tiny_folder("mpnet")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("../../evil", "/evil", "all-mpnet-base-v2/../evil", "all-mpnet-base-v2/evil"):
            packed.writestr(name, "evil")
        for file in sorted(folder.iterdir()):
            packed.writestr(f"all-mpnet-base-v2/{file.name}", file.read_bytes())
    size = len(archive.getvalue()) // 5 + 1
    archive.seek(0)
    for number, package in enumerate(checkpoint.MPNET_PACKAGES, 1):
        install(site, package, f"all-mpnet-base-v2.zip.{number:03}", archive.read(size))
    monkeypatch.setitem(BUILT_IN, "mpnet", sha256(folder / "model.safetensors"))
    monkeypatch.setattr(checkpoint, "MPNET_FILES", tuple(file.name for file in folder.iterdir()))
    return site


def test_model_folder_joins_mpnet_once_and_unpacks_known_names_only(mpnet_site, tmp_path):
    folder = model_folder("mpnet")
    assert {file.name for file in folder.iterdir()} == set(checkpoint.MPNET_FILES)
    assert not list(tmp_path.rglob("evil*"))
    shutil.rmtree(mpnet_site)  # what is in the cache is enough
    assert model_folder("mpnet") == folder


@pytest.mark.parametrize(
    "damage", [lambda part: part[:-1], lambda part: part[:100] + bytes(100) + part[200:]]
)
def test_load_model_refuses_a_damaged_part_of_mpnet(damage, mpnet_site):
    (path,) = mpnet_site.rglob("*.zip.003")
    part = path.read_bytes()
    path.write_bytes(damage(part))
    with pytest.raises(ModelError, match="model 'mpnet': "):
        load_model("mpnet", device="cpu")
    path.write_bytes(part)
    assert load_model("mpnet", device="cpu").name == "mpnet"


@pytest.mark.parametrize("name", ["minilm", "mpnet", "smollm2"])
def test_model_folder_names_a_package_that_is_missing(name, site):
    requirements = "requirements" if name == "minilm" else f"requirements-{name}"
    with pytest.raises(ModelError, match=f"the package .* {requirements}.txt"):
        model_folder(name)


@pytest.fixture
def minilm_site(site, tiny_folder, monkeypatch):
    """A package that holds a tiny model."""
    weights = (tiny_folder("bert") / "model.safetensors").read_bytes()
    install(site, checkpoint.DEFAULT_PACKAGE, "model.safetensors", weights)
    package = site / checkpoint.DEFAULT_PACKAGE
    shutil.copytree(tiny_folder("bert"), package, dirs_exist_ok=True)
    monkeypatch.setitem(BUILT_IN, "minilm", sha256(package / "model.safetensors"))


@pytest.mark.parametrize("name", ["minilm", "mpnet"])
def test_load_model_verifies_built_in_weights_at_every_load(name, minilm_site, mpnet_site):
    loaded = load_model(name, device="cpu")
    assert (loaded.slug, loaded.key["weights_sha256"]) == (name, BUILT_IN[name])
    flip(model_folder(name) / "model.safetensors")
    with pytest.raises(ModelError, match=r"SHA-256 of the weights .* Remove this folder"):
        load_model(name, device="cpu")


def test_model_folder_refuses_a_damaged_gguf_file(site):
    install(site, checkpoint.SMOLLM2_PACKAGE, checkpoint.GGUF_FILE, b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=f"is not {checkpoint.GGUF_SHA256}"):
        model_folder("smollm2")


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The cache with smollm2, made of the package that is installed."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(root))
        if find_spec("gguf") is not None:
            import gguf

            # The file is read for the configuration, the weights and the tokenizer, and its names
            # are translated for each module: most of the time, for what is always the same.
            for name in ("GGUFReader", "get_tensor_name_map"):
                patch.setattr(gguf, name, cache(getattr(gguf, name)))
        try:
            model_folder("smollm2")
        except ModelError as error:
            pytest.skip(str(error))
    return root


def test_load_model_of_smollm2_has_the_logits_and_maps_of_plain_transformers(smollm2, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(smollm2))
    loaded = load_model("smollm2", device="cpu")
    folder = model_folder("smollm2")
    assert loaded.key["weights_sha256"] == sha256(folder / "model.safetensors")
    assert (loaded.layers, loaded.heads) == (30, 9)
    assert all(layer == {"causal": True, "window": None} for layer in loaded.visible)
    ids = AutoTokenizer.from_pretrained(folder)("<|endoftext|>" + TEXT, return_tensors="pt")
    assert loaded.tokenizer(TEXT)["input_ids"] == ids["input_ids"][0].tolist()
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        expected = plain(ids["input_ids"], labels=ids["input_ids"], output_attentions=True)
        output = loaded.model(ids["input_ids"], output_attentions=True)
    assert torch.equal(output.logits, expected.logits)
    assert torch.equal(torch.stack(output.attentions), torch.stack(expected.attentions))
    assert expected.loss < 4.5  # wrongly read weights would be near ln(49152) = 10.8
    study = Study(model="smollm2", name="mine", segments=4)
    assert WEIGHTS_NOTES["smollm2"] in study.title, "figures say that it has 4-bit weights"
