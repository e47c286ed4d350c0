"""The results of VBench and VBench-2.0 as the report page of a run shows them."""

from collections.abc import Iterator
from typing import Any

from galaxydit.eval.published import SUITES
from galaxydit.eval.published.suite import Suite
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.vbench.results import DimensionScore, Results, VariantScores, read_results, results_path

NAMED = 4  # missing dimensions that are named, the others are counted
UNMEASURED = VariantScores(groups={}, total=None, missing=(), dimensions={})


def benchmark_tables(run: Run) -> list[dict[str, Any]]:
    """A table with "title", "rows" and "notes" for each benchmark that measured the run, if the run is on this machine.

    Rows have "name" and "cells" by variant: None, or "points" of 100; a dimension's cell also has "isPartial" against
    the protocol, and "drop" with its 95 % interval "low" to "high", the points lost against the baseline.
    """
    if run.root is None:
        return []
    paths = [(suite, results_path(run.root, suite.name)) for suite in SUITES.values()]
    return [_table(run, suite, read_results(path)) for suite, path in paths if path.is_file()]


def _table(run: Run, suite: Suite, results: Results) -> dict[str, Any]:
    scores = [results.variants.get(variant.name, UNMEASURED) for variant in run.job.variants]
    rows: list[dict[str, Any]] = [
        {"name": name.replace("_", " "), "cells": [_cell(each.dimensions.get(name)) for each in scores]}
        for name in suite.dimensions
    ]
    for name in (*suite.groups, "total"):
        points = [each.total if name == "total" else each.groups.get(name) for each in scores]
        cells = [None if value is None else {"points": value} for value in points]
        rows.append({"name": name, "isTotal": True, "cells": cells})
    rows = [row for row in rows if any(row["cells"])]
    failed = [f"No score for {place}: {why}" for place, why in results.failed.items()]
    return {"title": suite.title, "rows": rows, "notes": [*notes(suite, results), *failed]}


def _cell(score: DimensionScore | None) -> dict[str, Any] | None:
    if score is None:
        return None
    drop = {} if score.drop is None else {"drop": score.drop.mean, "low": score.drop.low, "high": score.drop.high}
    return {"points": score.points, "isPartial": not score.complete, **drop}


def notes(suite: Suite, results: Results) -> Iterator[str]:
    """Sentences on the version, the videos, and what counts in no total."""
    scores = results.variants.values()
    lossy = 'compressed with loss, which counts too (video = "lossless" in the job avoids that)'
    kept = "without loss" if results.lossless else lossy
    yield f"{suite.package} {results.package_version}, in points, 100 being the best; videos {kept}."
    if any(not score.complete for each in scores for score in each.dimensions.values()):
        yield "* other prompts or fewer videos than the benchmark's protocol asks for: no part of a total."
    missing = list(dict.fromkeys(name for each in scores if each.total is None for name in each.missing))
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        yield f"No total, which would need every dimension in full. Lacking: {', '.join(missing[:NAMED])}{more}."
    if results.left_out:
        why = f"{suite.title} ran before each variant had their video"
        yield f"{results.left_out} pairs of prompt and seed left out: {why}."
