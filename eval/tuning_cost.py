"""What tuning spent and promised: `python -m galaxydit.eval.tuning_cost FOLDER --out FILE`.

FOLDER is the --out of `galaxydit compare`. The counts are of its videos of tuning captions. The PSNRs are of the
settings that tuning chose: on the tuning captions, and on the captions that were scored.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from galaxydit.eval.compare.plan import SCORING_SEED, TUNING_SEED
from galaxydit.eval.compared import label, read
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.method_registry import declared, slug_of
from galaxydit.eval.protocol_data import FOLDER
from galaxydit.files import write_json
from galaxydit.pipelines.runs import Store
from galaxydit.pipelines.table import Table, number

NAME = "tuning.json"
TUNED, SCORED = "psnr_tuned", "psnr_scored"  # keys of a row


Video = tuple[Mapping[str, Any], Mapping[str, float]]
"""The data of a video's unit, and its metrics."""


def tuning_cost(videos: Iterable[Video]) -> dict[str, dict[str, float]]:
    """By method: the settings tried, their videos, and the mean PSNRs of the chosen settings on both kinds of captions.

    A setting is chosen if it was scored on as many captions as any other. Without one, a method has counts alone.
    """
    tuned: dict[str, dict[str, list[float]]] = {}  # PSNRs by method and setting
    scored: dict[str, dict[str, list[float]]] = {}
    slugs = {slug_of(name): name for name in declared()}
    for data, metrics in videos:
        variant, seed = data["variant"], data["seed"]
        if variant["name"] == BASELINE or seed < TUNING_SEED:
            continue
        method = slugs.get(variant["method"], variant["method"])
        settings = (scored if seed >= SCORING_SEED else tuned).setdefault(method, {})
        settings.setdefault(variant["name"], []).append(metrics["psnr"])
    rows: dict[str, dict[str, float]] = {}
    for method, settings in sorted(tuned.items()):
        rows[method] = {"settings": len(settings), "videos": sum(map(len, settings.values()))}
        of_method = scored.get(method, {})
        most = max(map(len, of_method.values()), default=0)  # fewer: chosen while fewer captions were scored
        chosen = sorted(name for name in settings if len(of_method.get(name, ())) == most > 0)
        if chosen:
            rows[method][TUNED] = fmean(fmean(settings[name]) for name in chosen)
            rows[method][SCORED] = fmean(fmean(of_method[name]) for name in chosen)
    return rows


def tuning_section(results: Path, page: Path) -> str:
    """The counts of the committed files."""
    rows = []
    for path in sorted((results / FOLDER).rglob(NAME)):
        for name, row in read(path).items():
            psnrs = [number(row.get(key), ".1f") for key in (TUNED, SCORED)]
            rows.append([label(name), str(row["settings"]), str(row["videos"]), *psnrs])
    headings = (
        "method",
        "settings tried",
        "videos",
        "PSNR of the chosen ones, dB",
        "the same on the scored captions, dB",
    )
    return Table(headings, rows).markdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the --out of `galaxydit compare`")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    given = parser.parse_args()
    store = Store(given.folder)
    records = [record for _, record, _ in store.survey(sorted(store.unit_ids())) if record is not None]
    made = [record for record in records if record.is_done and "calibrates" not in record.data]
    write_json(given.out, tuning_cost((record.data, record.result["metrics"]) for record in made))


if __name__ == "__main__":
    main()
