"""Write the page "Your sentence", on which a browser runs a model; ``make book`` calls it.

``python -m scripts.browser_page MODEL`` writes the page of another model into build/your-sentence.
The runtime comes from npm, pinned by its version and SHA-512.
"""

import argparse
import base64
import hashlib
import re
import shutil
import subprocess
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from helpers.data.records import is_punctuation
from helpers.errors import InputError
from helpers.files import build_folder, cache_root, read_json
from helpers.metrics.atlas import NO_NAME
from helpers.metrics.heads import head_labels
from helpers.model.forward import forward, word_inputs
from helpers.model.loading import DEFAULT, Model, load_model, slug
from helpers.store.maps import open_maps
from helpers.viewer import page
from helpers.viewer.view import view
from scripts.browser_model import model_folder

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "book" / "your-sentence"
BUILT_IN_PARTS = ROOT / "helpers" / "data" / "embedded.csv"  # with their licences
EXAMPLE = "The committee that reviewed the proposals rejected my plan."
MAX_TOKENS = 128  # of a sentence
RUNTIME = "onnxruntime-web"
RUNTIME_VERSION = "1.30.0"
RUNTIME_SHA512 = (
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
)
RUNTIME_FILES = {  # in its package, and in the page
    "ort.wasm.bundle.min.mjs": "runtime.js",
    "ort-wasm-simd-threaded.wasm": "runtime.wasm",
}
DOWNLOADS = ("runtime.wasm", "graph.onnx", "vocabulary.txt")  # of your-sentence.js
EXPORTS = "export { show, wordsOf };\n"  # of the viewer's script, to your-sentence.js
# Nothing is loaded from another host, and nothing is sent to one.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
PLACE = re.compile(r"<!-- page -->.*?<!-- end -->\n", re.DOTALL)
LINK = '<a href="your-sentence/index.html"><strong>Type your sentence</strong></a>\n'


def runtime_folder() -> Path:
    """Return the folder with the files of the runtime; get them from npm if they are missing.

    InputError if npm is missing or fails, or if its package is not the pinned one.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise InputError("npm is not installed; install Node.js")
    name = f"{RUNTIME}-{RUNTIME_VERSION}"

    def write(temporary: Path) -> None:
        command = [npm, "pack", "--silent", f"{RUNTIME}@{RUNTIME_VERSION}"]
        done = subprocess.run(command, cwd=temporary, capture_output=True, text=True)
        archive = temporary / f"{name}.tgz"
        if done.returncode:
            raise InputError(f"npm cannot get {name}: {done.stderr.strip()[:200]}")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != RUNTIME_SHA512:
            raise InputError(f"{name}.tgz has the SHA-512 {digest}; {RUNTIME_SHA512} is pinned")
        with tarfile.open(archive) as package:
            for packed, target in RUNTIME_FILES.items():
                with package.extractfile(f"package/dist/{packed}") as content:
                    (temporary / target).write_bytes(content.read())
        archive.unlink()

    folder = cache_root() / "browser" / name
    build_folder(folder, write)
    return folder


def write_page(folder: Path, model_name: str = DEFAULT) -> None:
    """Write the page with the model and the runtime into a new folder.

    InputError if the runtime or a package is missing, or if the model is not of the right kind.
    """
    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            raise InputError(f"{package} is not installed; pip install -r requirements-book.txt")
    runtime = runtime_folder()
    encoder = load_model(model_name, device="cpu")
    check_tokenizer(encoder)
    graph = model_folder(encoder)
    shutil.copytree(runtime, folder)
    shutil.copy(graph / "graph.onnx", folder)
    pieces = encoder.tokenizer.get_vocab()
    in_order = sorted(pieces, key=pieces.__getitem__)
    (folder / "vocabulary.txt").write_text("\n".join(in_order), encoding="utf-8")
    (folder / "viewer.js").write_text(f"{page.SCRIPT}\n{EXPORTS}", encoding="utf-8")
    for name in ("tokenizer.js", "your-sentence.js"):
        shutil.copy(SOURCES / name, folder)
    data = {
        **page_data(encoder),
        "comparison": read_json(graph / "comparison.json"),
        "downloads": {name: (folder / name).stat().st_size for name in DOWNLOADS},
    }
    values = {"data": data, "style": page.STYLE, "page_policy": POLICY}
    html = page.render(SOURCES / "index.html", **values, licence=licence(model_name))
    (folder / "index.html").write_text(html, encoding="utf-8")


def check_tokenizer(encoder: Model) -> None:
    """Raise InputError unless the tokenizer is the one that tokenizer.js repeats."""
    backend = encoder.tokenizer.backend_tokenizer
    normalizer = backend.normalizer
    if type(backend.model).__name__ != "WordPiece" or not getattr(normalizer, "lowercase", False):
        raise InputError(
            f"{encoder.name}: the page needs an uncased BERT with a WordPiece tokenizer"
        )


def page_data(encoder: Model) -> dict[str, Any]:
    """Collect what the page needs to know of a model: what a viewer needs, and more.

    The names of heads are those of the committed atlas; they are empty if it has no such model.
    """
    inputs = word_inputs(encoder.encode_words(EXAMPLE.split()))
    tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    maps = torch.cat(forward(encoder, [inputs])[0])
    store = open_maps(maps, tokens, name=encoder.name, special_tokens=encoder.special_tokens)
    pieces = encoder.tokenizer.get_vocab()
    names = {}
    atlas = ROOT / "figures" / slug(encoder.name) / "tables" / "atlas.csv"
    if atlas.is_file():
        heads = pd.read_csv(atlas, keep_default_na=False)
        titles = heads["name"].where(heads["name"] != NO_NAME, heads["kind"])
        labels = head_labels(encoder.layers, encoder.heads)
        names = dict(zip(labels, titles + ", " + heads["number"], strict=True))
    return {
        **view(store, layer=min(3, encoder.layers)).settings(),
        "facts": {**page.page_facts(store, store[0]), "corpus": "own-text"},
        "names": names,
        "text": EXAMPLE,
        "punctuation": [number for piece, number in pieces.items() if is_punctuation(piece)],
        "max_tokens": MAX_TOKENS,
    }


def licence(model_name: str) -> str:
    """Name the model, and the licence of a built-in one."""
    parts = pd.read_csv(BUILT_IN_PARTS, index_col="part")
    row = f"model {model_name}"
    if row not in parts.index:
        return f"The model is {model_name}."
    source = parts["source"][row].partition(":")[0]
    return f"The model is {source} (licence: {parts['licence'][row]})."


def add_to_book(source: Path) -> None:
    """Write the page into the sources of the book, or say why the book is without it."""
    try:
        write_page(source / "extra" / "your-sentence")
    except InputError as error:
        print(f"The book is without the page 'Your sentence': {error}.")
        return
    path = source / "your-sentence.md"
    path.write_text(PLACE.sub(LINK, path.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Write the page of a model into build/your-sentence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=DEFAULT, help="name or folder of a model")
    folder = ROOT / "build" / "your-sentence"
    shutil.rmtree(folder, ignore_errors=True)
    write_page(folder, parser.parse_args().model)
    print(f"python -m http.server --directory {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
