"""Files of prompts as people export them."""

import json
import warnings
from pathlib import Path

import pytest

from galaxydit.calibration.prompt_files import read_prompts
from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.eval.jobs.jobfile import job_of

A, B = "A cat, walking; slowly", "A dog runs"
IMAGE = {"prompt": A, "image": "cat.png"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "text", "prompts"),
    [
        ("a.csv", f'\ufeffPrompt\r\n"{A}"\r\n{B}\r\n\r\n', [A, B]),
        ("a.csv", f'prompt;image\n"{A}";cat.png\n{B};\n', [IMAGE, B]),
        ("a.tsv", f"image\tprompt\ncat.png\t{A}\n\t{B}\n", [IMAGE, B]),
        ("a.TSV", f"prompt\n{A}\n", [A]),
        ("table.txt", f'prompt,mask\n"{A}",\n{B},\n', [A, B]),
        ("a.json", json.dumps([A, IMAGE], indent=1), [A, IMAGE]),
        ("list.txt", json.dumps([A, B], indent=1), [A, B]),
        ("a.jsonl", f"{json.dumps(A)}\n\n{json.dumps(IMAGE)}\n", [A, IMAGE]),
        ("a.txt", f'[wide shot] {A}\r\n"{B}"\n{json.dumps(IMAGE)}', [f"[wide shot] {A}", f'"{B}"', IMAGE]),
    ],
)
def test_lines_tables_and_lists_are_read(name: str, text: str, prompts: list[str | dict], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    expected = [prompt if isinstance(prompt, str) else json.dumps(prompt) for prompt in prompts]
    assert read_prompts(tmp_path / name) == expected
    data = {"model": "wan-tiny", "prompts": {"file": name}, "variants": {"galaxydit": {"speedup": 2.0}}}
    assert list(job_of(data, tmp_path).prompts) == expected


def test_columns_that_are_not_read_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id,prompt,seed\n1,{B},7\n")
    with pytest.warns(DataWarning, match=r"galaxydit: prompts='.*a.csv': the columns id, seed are not read"):
        assert read_prompts(tmp_path / "a.csv") == [B]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"A cat\nA dog\n", "a column prompt, not ['A cat']"),
        ("a.csv", b"prompt,mask\nA cat, walking, slowly,\n", "no more cells than columns in line 2"),
        ("a.csv", b"prompt,image\n,cat.png\n", "a prompt and no more cells than columns in line 2"),
        ("a.json", b'{"prompts": ["A cat"]}', "a list in JSON"),
        ("a.json", b'["A cat"', "a list in JSON"),
        ("a.json", b'["A cat", 3]', "texts and objects, not 3"),
        ("a.jsonl", b'"A cat"\nA dog\n', "texts and objects, not 'A dog'"),
        ("a.yaml", b"- A cat\n", "lines of text, CSV, TSV or JSON"),
        ("a.txt", "l\u00e4uft".encode("latin-1"), "text in UTF-8"),
        ("a.csv", "prompt\nl\u00e4uft".encode("utf-16"), "text in UTF-8"),
    ],
)
def test_other_files_are_refused(name: str, content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GalaxyDiTError) as refused:
        read_prompts(tmp_path / name, "--prompts")
    assert str(refused.value).startswith("--prompts=")
    assert expected in refused.value.expected
    assert refused.value.cure
    with warnings.catch_warnings(), pytest.raises(GalaxyDiTError, match=r"prompts\.file="):
        job_of({"model": "wan-tiny", "prompts": {"file": name}}, tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('prompt\nA cat\n\n"golden hour, a dog\nA bird\nA fish\n', "a complete row from line 4 on (unexpected end"),
        ('prompt\nA cat\n"golden hour, a dog\n"A bird"\n', "a complete row from line 3 on ("),
        (f"prompt\nA cat\n{'x' * 140_000}", "a complete row from line 3 on (field larger than"),
        ('"prompt\nA cat\n', "a complete row from line 1 on ("),
        ("prompt\tPrompt \nA cat\tA dog\n", "one column prompt, not ['prompt', 'Prompt ']"),
        ("prompt,image,image\nA cat,,cat.png\n", "one column image, not"),
    ],
    ids=lambda text: text[:40],
)
def test_a_table_loses_no_row_and_no_column_silently(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(GalaxyDiTError, match=r"a\.csv' is not allowed: expected") as refused:
        read_prompts(tmp_path / "a.csv")
    assert expected in refused.value.expected
