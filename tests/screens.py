"""Photograph a finished default run: ``python tests/screens.py`` after ``make run``.

The pictures go to figures/screens.

Needs playwright and Chromium, as tests/viewer/test_browser.py does.
"""

import re
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from helpers.files import PROJECT_ROOT, build_dir
from helpers.viewer.view import Viewer

CHROMIUM = "/usr/bin/chromium"
SIZES = {"viewer": (1200, 470), "report": (1300, 1500)}


def readme_viewer() -> Viewer:
    """Return the viewer of the README's first example."""
    page = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(from helpers\.viewer.*?)```", page, re.S)[1]
    variables = {}
    exec(code.replace("\nview(", "\nviewer = view("), variables)
    return variables["viewer"]


def main() -> None:
    """Write the two pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running, tempfile.TemporaryDirectory() as folder:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        pages = {
            "viewer": readme_viewer().save(Path(folder, "viewer.html")),
            "report": build_dir("minilm") / "index.html",
        }
        for name, path in pages.items():
            width, height = SIZES[name]
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(path.resolve().as_uri())
            page.locator(".av-lines line, main img").first.wait_for()
            page.wait_for_timeout(500)
            picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
            target = PROJECT_ROOT / "figures" / "screens" / f"{name}.png"
            picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
            print(f"{target}: {target.stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
