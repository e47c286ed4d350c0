"""Counts what tuning spent: `python -m galaxydit.eval.tuning_cost FOLDER --out eval/results/protocol-2/tuning.json`.

FOLDER is the --out of `galaxydit compare`; the counts are of its videos of tuning captions.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from galaxydit.eval.compare.plan import SCORING_SEED, TUNING_SEED
from galaxydit.eval.compared import label, read
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.method_registry import declared, slug_of
from galaxydit.eval.protocol_data import FOLDER
from galaxydit.eval.protocol_tables import NOT_YET
from galaxydit.files import write_json
from galaxydit.pipelines.runs import Store
from galaxydit.pipelines.table import Table

NAME = "tuning.json"


def tuning_cost(videos: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By method, the numbers of settings that were tried and of videos, from the data of videos' units."""
    settings: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    slugs = {slug_of(name): name for name in declared()}
    for data in videos:
        variant = data["variant"]
        if variant["name"] == BASELINE or not TUNING_SEED <= data["seed"] < SCORING_SEED:
            continue
        method = slugs.get(variant["method"], variant["method"])
        settings.setdefault(method, set()).add(variant["name"])
        counts[method] = counts.get(method, 0) + 1
    return {method: {"settings": len(settings[method]), "videos": counts[method]} for method in sorted(counts)}


def tuning_section(results: Path, page: Path) -> str:
    """The counts of the committed file."""
    path = results / FOLDER / NAME
    if not path.exists():
        return NOT_YET
    rows = [[label(name), str(row["settings"]), str(row["videos"])] for name, row in read(path).items()]
    return Table(("method", "settings tried", "videos"), rows).markdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the --out of `galaxydit compare`")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    given = parser.parse_args()
    store = Store(given.folder)
    records = [record for _, record, _ in store.survey(sorted(store.unit_ids())) if record is not None]
    write_json(given.out, tuning_cost(record.data for record in records if "calibrates" not in record.data))


if __name__ == "__main__":
    main()
