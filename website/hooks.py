"""What MkDocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

import repository


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the package, and files of the repository outside docs/."""
    repository.add_linked_files(files, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Changes links as the site needs them."""
    return repository.rewritten(markdown, page.file.src_uri)
