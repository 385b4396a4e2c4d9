"""Check the built documentation: no request leaves the site, both languages are there: check_site.py SITE."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|"
    r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|dns-prefetch|icon))[^>]*\bhref=[\"']?(?:https?:)?//|"
    r"@import\b[^;]*https?://|\burl\([\"']?(?:https?:)?//"
)
"""What a browser loads by itself; links that a reader clicks may leave the site."""


def find_problems(site: Path) -> Iterator[str]:
    """Yield one line for every page that loads something from elsewhere, and for a language that cannot be searched."""
    for path in sorted((*site.rglob("*.html"), *site.rglob("*.css"))):
        if found := LOADED.search(path.read_text("utf-8")):
            yield f"{path} loads something from elsewhere: {found.group()[:100]}"
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    for language, word, place in (("en", "interval", ""), ("ko", "신뢰 구간", "ko/")):
        pages = [page for page in index["docs"] if page["location"].startswith("ko/") == bool(place)]
        if language not in index["config"]["lang"] or not any(word in page["text"] for page in pages):
            yield f"{site}: the search does not find {word} in {language}; look at the search plugin in mkdocs.yml"


def main(site: Path) -> int:
    """Check the site; return the exit code."""
    problems = list(find_problems(site))
    print("\n".join(problems) or f"{site}: {len(list(site.rglob('*.html')))} pages, nothing loaded from elsewhere")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
