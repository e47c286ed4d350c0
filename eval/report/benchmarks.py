"""The results of VBench and VBench-2.0, where a run has them, as the page shows them."""

from collections.abc import Iterator
from typing import Any

from galaxydit.eval.report.run import Run
from galaxydit.eval.vbench.benchmark import BENCHMARKS, Benchmark
from galaxydit.eval.vbench.results import DimensionScore, Results, read_results, results_path

NAMED = 4  # missing dimensions that are named, the others are counted


def benchmark_tables(run: Run) -> list[dict[str, Any]]:
    """One table for each benchmark with results: dimensions, groups and total by variant, in points."""
    if run.root is None:
        return []
    found = [(results_path(run.root, package), benchmark) for package, benchmark in BENCHMARKS.items()]
    return [_table(run, benchmark, read_results(path)) for path, benchmark in found if path.is_file()]


def _table(run: Run, benchmark: Benchmark, results: Results) -> dict[str, Any]:
    scores = [results.variants.get(name) for name in run.variants]
    rows: list[dict[str, Any]] = [
        {"name": name.replace("_", " "), "cells": cells}
        for name in benchmark.dimensions
        if any(cells := [_cell(each.dimensions.get(name)) if each else None for each in scores])
    ]
    rows += [
        {"name": name, "isTotal": True, "cells": cells}
        for name in benchmark.group_weights
        if any(cells := [{"points": each.groups[name]} if each and name in each.groups else None for each in scores])
    ]
    totals = [{"points": each.total} if each and each.total is not None else None for each in scores]
    if any(totals):
        rows.append({"name": "total", "isTotal": True, "cells": totals})
    return {"title": benchmark.title, "rows": rows, "notes": list(_notes(run, results))}


def _cell(score: DimensionScore | None) -> dict[str, Any] | None:
    if score is None:
        return None
    cell: dict[str, Any] = {"points": score.points, "isPartial": not score.complete}
    if score.drop is not None:
        cell |= {"drop": score.drop.mean, "low": score.drop.low, "high": score.drop.high}
    return cell


def _notes(run: Run, results: Results) -> Iterator[str]:
    kept = "without loss" if results.lossless else "compressed with loss"
    yield f"{results.benchmark} {results.package_version}, in points, 100 being the best; videos {kept}."
    dimensions = [each for name in run.variants if name in results.variants for each in [results.variants[name]]]
    if any(not score.complete for each in dimensions for score in each.dimensions.values()):
        yield "* other prompts or fewer videos than the benchmark's protocol asks for: no part of a total."
    missing = list(dict.fromkeys(name for each in dimensions if each.total is None for name in each.missing))
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        yield f"No total, which would need every dimension in full. Lacking: {', '.join(missing[:NAMED])}{more}."
    if results.left_out:
        yield f"{results.left_out} pairs of prompt and seed left out, since a variant has no video of them."
    for place, why in results.failed.items():
        yield f"No score for {place}: {why}"
