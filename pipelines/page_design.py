"""The one design of all pages: a template and a style sheet, which a page extends with its own.

Pages are single files that load nothing. Every value of a template is escaped, and the content security policy allows
the page's own script and style alone, by hashes, so that text in a prompt can neither run code nor load anything.
"""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from galaxydit.foreign_text import printable
from galaxydit.pipelines.table import Table

BASE = "base.html"
PAGE = "page.html"  # under which a template is known while it is rendered


@dataclass(frozen=True)
class Brief:
    """What stands at the top of every page.

    run: what was run. meaning: the result in one sentence. command: the next command, and `purpose`: what it is for.
    """

    run: str
    meaning: str
    purpose: str
    command: str


def render_page(template: str, title: str, brief: Brief, *, style: str = "", script: str = "", **values: Any) -> str:
    """The HTML of a page.

    template: Jinja2, begins with `{% extends "base.html" %}` and fills the block "main". In it, `box(table, label)`
        puts a `Table` into a box of its own that scrolls, and `coded(text)` shows text between backticks as code.
    values: of the template; finished HTML among them has to be `Markup`. "facts", pairs of name and value, and "notes",
        sentences, stand below the brief.
    style, script: beside those of the design.
    """
    sheet = _asset("base.css") + style
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(sheet)}; "
        "media-src 'self' file: blob:; img-src 'self' file: data:"
    )
    environment = Environment(
        autoescape=True,
        finalize=_printed,
        loader=DictLoader({BASE: _asset(BASE), PAGE: template}),
        undefined=StrictUndefined,
    )
    environment.globals |= {"box": box, "coded": coded}
    shown: dict[str, Any] = {"facts": (), "notes": (), **values}
    return environment.get_template(PAGE).render(
        brief=brief, policy=policy, script=Markup(script), style=Markup(sheet), title=title, **shown
    )


def box(table: Table, label: str) -> Markup:
    """A table in a box that scrolls where the window is narrower, also by the keyboard; empty without columns."""
    if not table.headings:
        return Markup("")
    start = Markup('<div class="scroll" role="region" tabindex="0" aria-label="{}">').format(printable(label))
    return start + Markup(table.html()) + Markup("</div>")


def coded(text: str) -> Markup:
    """A text whose parts between backticks are shown as code."""
    forms = cycle((Markup("{}"), Markup("<code>{}</code>")))
    parts = [form.format(part) for form, part in zip(forms, printable(text).split("`"), strict=False)]
    return Markup("").join(parts)


def picture_address(path: Path) -> str:
    """A PNG file as an address that holds all of its bytes."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _asset(name: str) -> str:
    return (files("galaxydit.pipelines") / "design" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _printed(value: Any) -> Any:
    """What a page shows for a value of the template: text in printable characters, and finished HTML as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
