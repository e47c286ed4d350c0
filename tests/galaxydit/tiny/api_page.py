"""Write the page of the public names, from their docstrings: `python tests/galaxydit/tiny/api_page.py FOLDER`."""

import sys
from pathlib import Path

import galaxydit

try:
    import pdoc
except ModuleNotFoundError:
    sys.exit("pdoc, which writes the page, is not installed: pip install -e '.[docs]'")


def write_api_page(folder: Path) -> Path:
    """The file of the page, in a folder; pdoc comes with `pip install -e '.[docs]'`."""
    for name in galaxydit.__all__:  # pdoc reads the module's names, which are loaded when they are first used
        setattr(galaxydit, name, getattr(galaxydit, name))
    pdoc.render.configure(docformat="google", show_source=False)
    pdoc.pdoc("galaxydit", "!galaxydit.", output_directory=folder)
    return folder / "galaxydit.html"


if __name__ == "__main__":
    write_api_page(Path(sys.argv[1]))
