"""Pictures of the demo's pages for the documentation: `make pictures`, after `make demo`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.demo.files import FULL_STORAGE_SITE

REPORT = Path("demo/report/critical")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH, MAX_HEIGHT = 1240, 800


def main() -> int:
    months = sorted(path for path in REPORT.glob("????-??") if (path / "index.html").exists())
    if not months:
        print(f"no pages below {REPORT}: `make demo` writes them", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": MAX_HEIGHT})
        for name, source, below in (
            ("month", "index", "#what-counts"),
            ("site", FULL_STORAGE_SITE, "footer"),
        ):
            page.goto((months[-1] / f"{source}.html").resolve().as_uri())
            end = page.locator(below).bounding_box()
            height = min(MAX_HEIGHT, end["y"] - 8 if end else MAX_HEIGHT)
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": height}
            picture = PICTURES / f"{name}.png"
            page.screenshot(path=picture, clip=clip)  # type: ignore[arg-type]
            print(f"{picture}: {picture.stat().st_size} bytes")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
