"""The worked examples of eval/README.md run as they are printed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from galaxydit.eval.compare.bench import Bench, Sample
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.metrics import measure

README = Path(__file__).parents[2] / "eval" / "README.md"


def example(heading: str) -> dict[str, Any]:
    """The names that the first Python block under a heading defines."""
    section = README.read_text(encoding="utf-8").split(f"### {heading}\n")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    names: dict[str, Any] = {"__name__": "example", "__file__": __file__}
    exec(compile(code, str(README), "exec"), names)
    return names


def test_the_metric_is_measured():
    metric = example("Adding a metric")["MEAN_ERROR"]
    video, reference = np.full((2, 8, 8, 3), 0.25), np.zeros((2, 8, 8, 3))
    values, *_ = measure(video, reference, "", [metric])
    assert values["mean_error"] == pytest.approx(0.25)


def test_the_method_is_compared(tiny_wan_pipeline, tiny_settings, tmp_path):
    method = example("Adding a method")["METHOD"]
    bench = Bench(tiny_wan_pipeline, replace(tiny_settings, steps=10), tmp_path, [method])
    (record,) = bench.measure([bench.sample_unit(method, None, {"first": 2}, Case("a red ball", 0), keep=False)])
    sample = Sample(**record.result)
    assert sample.compute_fraction == pytest.approx(0.6)  # 0, 1, 3, 5, 7, 9
    assert 0 < sample.psnr < 120
    assert [setting["first"] for setting in method.settings(50)] == [25, 10, 1]
