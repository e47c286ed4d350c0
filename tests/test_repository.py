"""What the checkout as a whole promises."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
INSTALL = 'python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ".[test]"'
TEST_COMMAND = f"{INSTALL} && .venv/bin/pytest -n 2"


def test_ci_ends_with_the_test_command_of_the_readme():
    assert TEST_COMMAND in (ROOT / "README.md").read_text().splitlines()
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == TEST_COMMAND


def test_each_room_is_one_package_under_galaxydit():
    for room in ("pipelines", "calibration", "eval"):
        assert (ROOT / "galaxydit" / room).resolve() == ROOT / room
