"""Photograph the viewer: ``python scripts/screens.py`` writes figures/screens/viewer.png.

Needs playwright and Chromium, as tests/viewer/test_browser.py does.
"""

import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from helpers import read, view

ROOT = Path(__file__).parents[1]  # of this clone, wherever helpers/ is installed from
PICTURE = ROOT / "figures" / "screens" / "viewer.png"
CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT = 1200, 470
SENTENCE = "The committee that reviewed the proposals rejected my plan."  # as in README.md


def main() -> None:
    """Write the picture."""
    from playwright.sync_api import sync_playwright

    store = read(SENTENCE, level="word")
    with sync_playwright() as running, tempfile.TemporaryDirectory() as folder:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        path = view(store, layer=3, head=1, relation="dobj").save(Path(folder, "viewer.html"))
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
