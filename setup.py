"""Everything about the package stands in pyproject.toml, but for its description on a package index.

That is README.md with the repository's address filled in: an index shows no relative links.
"""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent / "docs"))

from repository import index_description

setup(long_description=index_description(), long_description_content_type="text/markdown")
