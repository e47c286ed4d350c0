"""VBench-2.0 as this project describes it, against the files of its package: a download of 45 MB, so only on request.

GALAXYDIT_TEST_VBENCH=1 pytest tests/eval/vbench/test_upstream_files.py
"""

import ast
import json
import os
import re
import subprocess
import sys
from zipfile import ZipFile

import pytest

from galaxydit.eval.vbench.benchmark import VBENCH2

WANTED = pytest.mark.skipif("GALAXYDIT_TEST_VBENCH" not in os.environ, reason="set GALAXYDIT_TEST_VBENCH=1 to run it")


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> ZipFile:
    """The wheel of vbench2, which cannot be imported here: it needs CUDA 11.8."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "vbench2==0.1.1", "-d", str(folder)]
    subprocess.run(command, check=True)
    return ZipFile(next(folder.glob("*.whl")))


def source(package: ZipFile, name: str) -> str:
    return package.read(f"vbench2/{name}").decode()


@WANTED
def test_dimensions_and_prompts_are_those_of_its_list(package):
    entries = json.loads(source(package, VBENCH2.full_info))
    assert {name for entry in entries for name in entry["dimension"]} == set(VBENCH2.dimensions)
    assert all(set(entry) >= {"prompt_en", "dimension"} for entry in entries)


@WANTED
def test_the_same_dimensions_take_prompts_of_others(package):
    tree = ast.parse(source(package, "__init__.py"))
    check = next(one for one in ast.walk(tree) if getattr(one, "name", "") == "check_dimension_requires_extra_info")
    refused = {one.value for one in ast.walk(check) if isinstance(one, ast.Constant)} & set(VBENCH2.dimensions)
    assert refused == {name for name, one in VBENCH2.dimensions.items() if not one.custom}


@WANTED
def test_videos_are_counted_and_named_alike(package):
    code = source(package, "__init__.py")
    diversity, others = map(int, re.search(r"=='Diversity':\s+num=(\d+)\s+else:\s+num=(\d+)", code).groups())
    assert {name: one.samples for name, one in VBENCH2.dimensions.items()} == {
        name: diversity if name == "Diversity" else others for name in VBENCH2.dimensions
    }
    assert f"{{prompt[:{VBENCH2.longest_name}]}}{{special_str}}-{{str(i)}}{{postfix}}" in code


@WANTED
def test_weights_lie_where_its_code_looks_for_them(package):
    code = source(package, "utils.py")
    assert f"os.environ.get('{VBENCH2.cache_variable}')" in code
    for name, dimension in VBENCH2.dimensions.items():
        for weights in dimension.weights:
            assert f"{{CACHE_DIR}}/{weights.path}" in code, (name, weights.path)
