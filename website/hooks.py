"""What MkDocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

from typing import Any

import api_pages
import commands_page
import configuration_page
import gallery
import notebooks
import outputs
import repository
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

BOOSTS = {
    "errors.md": 0.9,
    "start.md": 1.5,
    "reference/configuration.md": 1.0,
    "reference/": 0.6,
    f"{repository.FOLDER}/": 0.3,
}
"""What counts more in a search, and what less, by the beginning of a page's address: guides go before lists."""

_shown: dict[str, outputs.Shown] = {}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the package, and files of the repository outside docs/."""
    made = {package.src_uri: api_pages.page(package) for package in api_pages.packages()}
    for module in (commands_page, configuration_page, gallery):
        made[module.SRC_URI] = module.page()
    for src_uri, content in made.items():
        files.append(File.generated(config, src_uri, content=content))
    for page in notebooks.pages():
        shown = _shown[f"tutorials/{page.name}"] = outputs.shown_by(page)
        for name, picture in shown.pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=picture))
    repository.add_linked_files(files, config)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Changes links as the site needs them, and adds what tutorials show."""
    boosts = [boost for begin, boost in BOOSTS.items() if page.file.src_uri.startswith(begin)]
    if boosts:
        page.meta["search"] = {"boost": boosts[0], **page.meta.get("search", {})}
    markdown = repository.rewritten(repository.with_films(markdown), page.file.src_uri)
    shown = _shown.get(page.file.src_uri)
    return markdown if shown is None else outputs.with_outputs(markdown, shown)


def on_post_page(output: str, **_: Any) -> str:
    """Gives a name to the theme's dialog for searches, for those who have the page read out."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')
