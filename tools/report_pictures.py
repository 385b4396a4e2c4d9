"""Draw docs/images/report-*.png in chromium (playwright), from runs on the sample: report_pictures.py RUNS_FOLDER.

The Korean pictures need a Korean font, such as Debian's fonts-nanum.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

from playwright.sync_api import sync_playwright

from danseo.language import translate
from danseo.runs.index import find_runs

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main(runs: Path) -> None:
    """Write reports of the runs, and pictures of their first page and of the mistakes of a tagger and a parser."""
    names = sorted(record.run.path.name for record in find_runs(runs))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 620})
        for language, suffix in (("en", ".png"), ("ko", ".ko.png")):  # the Korean pages show the latter
            page_file = Path(folder) / f"report-{language}.html"
            command = [sys.executable, "-m", "danseo", "report", str(runs), "--data", "sample", "--lang", language]
            subprocess.run([*command, "--out", str(page_file)], check=True)
            page.goto(page_file.as_uri())
            page.screenshot(path=IMAGES / f"report-overview{suffix}")
            for task in ("ner", "dp"):
                number = 1 + next(i for i, name in enumerate(names) if name.startswith(f"{task}--mini--"))
                page.goto(f"{page_file.as_uri()}#run-{number}")
                heading = page.locator(f"#run-{number} h3", has_text=translate("Mistakes", language))
                heading.first.evaluate("element => element.scrollIntoView()")
                page.mouse.wheel(0, -60)  # below the bar at the top
                page.wait_for_timeout(500)
                page.screenshot(path=IMAGES / f"report-{task}{suffix}")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
