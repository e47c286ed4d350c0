"""The page of the public names is made from their docstrings."""

import re
from pathlib import Path

import pytest

import galaxydit

pytest.importorskip("pdoc", reason="pdoc is not installed: pip install -e '.[docs]'")


@pytest.mark.filterwarnings("error:Found .* in galaxydit.__all__")
def test_every_public_name_is_on_the_page_with_its_docstring(tmp_path: Path) -> None:
    from api_page import write_api_page

    page = write_api_page(tmp_path / "api").read_text(encoding="utf-8")
    for name in galaxydit.__all__:
        section = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
        assert section is not None, name
        assert 'class="docstring"' in section[1], name
