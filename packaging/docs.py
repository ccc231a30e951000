#!/usr/bin/env python3
"""Copies docs/ into a folder for the package, and fails if a link of a copied page leads nowhere.

    packaging/docs.py DIR

The package has no other part of the source: a link that leaves docs/ becomes the path in the source.
"""

import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def is_local(target):
    return not re.match(r"[a-z]+:|#", target)


def copied(page):
    """The text of a page, without links that leave docs/."""

    def link(match):
        text, target = match.groups()
        place = (page.parent / target.partition("#")[0]).resolve()
        if not is_local(target) or place.is_relative_to(DOCS):
            return match[0]
        source = place.relative_to(DOCS.parent)
        return f"{text} (`{source}` in the source)" if str(source) not in text else f"{text} in the source"

    return LINK.sub(link, page.read_text())


def dead(folder):
    for page in sorted(folder.rglob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)", page.read_text()):
            if is_local(target) and not (page.parent / target.partition("#")[0]).exists():
                yield f"{page.relative_to(folder)}: {target}"


def main():
    folder = Path(sys.argv[1])
    shutil.copytree(DOCS, folder)
    for page in DOCS.rglob("*.md"):
        (folder / page.relative_to(DOCS)).write_text(copied(page))
    if found := list(dead(folder)):
        sys.exit("links of the packaged pages lead nowhere:\n" + "\n".join(found))


main()
