"""Photograph the viewer: ``python scripts/screens.py`` writes figures/screens/viewer.png.

Needs playwright and Chromium, as tests/viewer/test_browser.py does.
"""

import re
import runpy
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from helpers.viewer.view import Viewer

ROOT = Path(__file__).parents[1]  # of this clone, wherever helpers/ is installed from
PICTURE = ROOT / "figures" / "screens" / "viewer.png"
CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT = 1200, 470


def readme_viewer() -> Viewer:
    """Return the viewer of the README's first example."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(from helpers import read, view.*?)```", page, re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "example.py")
        script.write_text(code.replace("\nview(", "\nviewer = view("), encoding="utf-8")
        return runpy.run_path(str(script))["viewer"]


def main() -> None:
    """Write the picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running, tempfile.TemporaryDirectory() as folder:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        path = readme_viewer().save(Path(folder, "viewer.html"))
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(path.resolve().as_uri())
        page.locator(".av-lines line").first.wait_for()
        page.wait_for_timeout(500)
        picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)
        print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
