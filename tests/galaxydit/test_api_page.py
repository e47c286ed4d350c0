"""The page of the public names is made from their docstrings."""

import re
import runpy
import sys
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


def test_the_page_without_its_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pdoc", None)
    with pytest.raises(SystemExit, match=r"pip install -e '\.\[docs\]'"):
        runpy.run_path(str(Path(__file__).parent / "tiny" / "api_page.py"))
