"""The site of `make docs`: it builds without a warning, has every page, and asks no other site for anything."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from tests.documents.pages import DOCS, ROOT

SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^\s"'>]*"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=["']?(?:https?:)?//[^\s"'>]*"""
)

FROM_ELSEWHERE = (
    '<script src="https://cdn.example/x.js">',
    '<link rel="stylesheet" href="//fonts.example/css">',
    "<img src=https://example/pixel.gif>",
)
LINK = re.compile(r'(?:href|src)="(?!https?:|data:|mailto:|#)([^"#]+)')


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it, strictly, in a folder of the test's own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_no_page_and_no_style_sheet_loads_anything_from_another_site(site: Path) -> None:
    assert all(map(ELSEWHERE.search, FROM_ELSEWHERE))
    pages = {page: ELSEWHERE.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page.name: found for page, found in pages.items() if found} == {}
    sheets = [sheet.read_text() for sheet in site.rglob("*.css")]
    assert sheets
    assert [found for sheet in sheets for found in re.findall(r"url\([\"']?(?:https?:)?//[^)]*", sheet)] == []


def test_every_page_is_in_the_menu() -> None:
    assert sorted(_leaves(SETTINGS["nav"])) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_page_is_in_the_site_and_its_links_lead_to_files_of_it(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    expected = {str(page.relative_to(DOCS).with_suffix(".html")) for page in DOCS.rglob("*.md")}
    assert expected <= {str(page.relative_to(site)) for page in pages}
    assert not _there(site / "index.html", "../README.md", site)
    lost = {
        (page.name, link) for page in pages for link in LINK.findall(page.read_text()) if not _there(page, link, site)
    }
    assert lost == set()


def _there(page: Path, link: str, site: Path) -> bool:
    target = (page.parent / unquote(link)).resolve()
    return target.is_relative_to(site.resolve()) and target.exists()


def _leaves(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [leaf for value in entry.values() for leaf in _leaves(value)]
    assert isinstance(entry, list)
    return [leaf for value in entry for leaf in _leaves(value)]
