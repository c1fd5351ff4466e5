"""What MkDocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import api_pages
import commands_page
import configuration_page
import repository


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the package, and files of the repository outside docs/."""
    made = {package.src_uri: api_pages.page(package) for package in api_pages.packages()}
    made |= {commands_page.SRC_URI: commands_page.page(), configuration_page.SRC_URI: configuration_page.page()}
    for src_uri, content in made.items():
        files.append(File.generated(config, src_uri, content=content))
    repository.add_linked_files(files, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Changes links as the site needs them."""
    return repository.rewritten(markdown, page.file.src_uri)
