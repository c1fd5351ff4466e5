"""The site in a real browser: `make browser`."""

from __future__ import annotations

import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import LOOKS, SIZES, opened, serious, until

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
sys.path.insert(0, str(ROOT / "tests" / "site"))
from questions import QUESTIONS, Question  # noqa: E402

pytestmark = [pytest.mark.only_with("ENVFLEET_BROWSER"), pytest.mark.timeout(300)]

KINDS = {
    "home": "index.html",
    "start": "start.html",
    "tutorial": "tutorials/showcasing.html",
    "how-to": "own_environment.html",
    "arguments": "make_vec.html",
    "api": "reference/envfleet.wrappers.html",
    "commands": "reference/commands.html",
    "configuration": "reference/configuration.html",
    "errors": "errors.html",
    "explanation": "why_fast.html",
    "source": "repo/examples/own_algorithm.py.html",
    "gallery": "gallery.html",
    "benchmark": "repo/benchmarks/learning/results/index.html",
}
"""One page of each kind."""


@LOOKS
@pytest.mark.parametrize("kind", KINDS)
def test_pages_fit_the_screen_load_nothing_and_can_be_read_by_all(
    browser: Any, axe: str, size: str, scheme: str, kind: str
) -> None:
    page, problems = opened(browser, (SITE / KINDS[kind]).as_uri(), size, scheme)
    page.locator("article h1").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    assert problems == []
    assert serious(page, axe) == []


@pytest.mark.parametrize("kind", ["home", "start", "tutorial", "gallery", "benchmark"])
def test_pictures_are_drawn_and_films_play(browser: Any, kind: str) -> None:
    page, problems = opened(browser, (SITE / KINDS[kind]).as_uri())
    for picture in page.locator("article img").all():
        picture.scroll_into_view_if_needed()
        until(functools.partial(picture.evaluate, "image => image.complete && image.naturalWidth > 50"))
    for film in page.locator("article video").all():
        film.evaluate("video => video.play()")
        until(functools.partial(film.evaluate, "video => video.currentTime > 0 || video.ended"))
    assert page.locator("article img, article video").count() > 0
    assert problems == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """`python -m http.server`, in a thread."""
    handler = functools.partial(QuietHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}/index.html"
        listening.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def search(page: Any, question: Question) -> list[str]:
    """Types into the search of a page; returns where the first five results lead."""
    field = page.locator("input.md-search__input")
    field.click()
    field.fill("")
    field.press_sequentially(question.typed)
    until(lambda: "matching" in page.locator(".md-search-result__meta").inner_text())
    page.wait_for_timeout(1000)  # what was typed last
    items = page.locator(".md-search-result__list > .md-search-result__item")
    found: list[str] = items.evaluate_all('all => all.slice(0, 5).map(one => one.querySelector("a").pathname)')
    return found


@pytest.fixture(scope="module")
def searched(browser: Any, server: str) -> tuple[Any, list[str]]:
    """A page with a search, and its problems."""
    return opened(browser, server)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.typed)
def test_a_newcomer_finds_the_answer_by_one_search(searched: Any, question: Question) -> None:
    page, problems = searched
    found = search(page, question)
    assert any(path.endswith("/" + question.page) for path in found), found
    assert problems == []


@pytest.mark.parametrize("size", SIZES)
def test_the_search_works_without_a_server(browser: Any, size: str) -> None:
    page, problems = opened(browser, (SITE / "tutorials" / "making.html").as_uri(), size)
    if size == "phone":
        page.locator("label.md-header__button[for=__search]").click()
    found = search(page, QUESTIONS[0])
    assert any(path.endswith("/" + QUESTIONS[0].page) for path in found), found
    assert problems == []


def test_the_toggle_changes_the_colours(browser: Any) -> None:
    page, _ = opened(browser, (SITE / "index.html").as_uri())
    assert page.evaluate("document.body.dataset.mdColorScheme") == "default"
    page.locator("form[data-md-component=palette] label:visible").click()
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
