"""The pages of the site: the Markdown files of the repository, the API, and a page for each published model.

Links between pages stay; links to other files lead to the repository.
"""

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads this file by its path

from api_page import api_page
from model_pages import MODELS, model_index, model_page
from repository import PICTURES, ROOT, address, link_to_file, relinked, with_address

FOLDERS = ("docs", "galaxydit", "pipelines", "calibration", "eval", "tests")
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
MODEL_FOLDER = "docs/models"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the address of the repository and the pages of models."""
    config.repo_url = address()
    config.repo_name = "Repository"
    models: list[Any] = [f"{MODEL_FOLDER}/index.md", *({name: f"{MODEL_FOLDER}/{name}.md"} for name in MODELS)]
    for entry in config.nav or []:
        if "Models" in entry:
            entry["Models"] = models
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages and pictures of the site by their paths in the repository, in place of the files of docs/ alone."""
    texts = pages()
    kept = [file for file in files if not file.is_documentation_page() and not file.src_uri.endswith(".py")]

    def new_target(target: str) -> str:
        is_shown = target in texts or target.endswith(PICTURES)
        is_missing = not (ROOT / target).exists()  # the strict build names such a link
        return "" if is_shown or is_missing else link_to_file(target)

    for path, text in texts.items():
        kept.append(File.generated(config, path, content=relinked(with_address(text), path, new_target)))
    for path in pictures(texts):
        kept.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return Files(kept)


def pages() -> dict[str, str]:
    """Markdown of each page by its path in the repository."""
    paths = [ROOT / name for name in TOP]
    for folder in FOLDERS:
        paths += sorted((ROOT / folder).rglob("*.md"))
    found = {}
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(("galaxydit/pipelines/", "galaxydit/calibration/", "galaxydit/eval/")):  # links
            found[name] = path.read_text(encoding="utf-8")
    found["docs/api.md"] = api_page()
    found[f"{MODEL_FOLDER}/index.md"] = model_index()
    for name in MODELS:
        found[f"{MODEL_FOLDER}/{name}.md"] = model_page(name)
    return found


def pictures(texts: dict[str, str]) -> list[str]:
    """Pictures that a page shows or links to."""
    found: set[str] = set()

    def keep(target: str) -> str:
        if target.endswith(PICTURES):
            found.add(target)
        return ""

    for page, text in texts.items():
        relinked(text, page, keep)
    return sorted(found)
