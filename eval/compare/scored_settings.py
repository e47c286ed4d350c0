"""The settings that another comparison has scored, so that this one need not tune."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from galaxydit.errors import refusal, short_reason
from galaxydit.pipelines.own_files import own_json
from galaxydit.pipelines.written_by import COMPARISON

if TYPE_CHECKING:
    from galaxydit.eval.methods.method import Setting

OPTION = "--settings-of"


@dataclass(frozen=True)
class ScoredSettings:
    """The settings of each method in the results.json at `path`, in its order, and the digest of the file."""

    path: Path
    by_method: Mapping[str, Sequence["Setting"]]
    digest: str

    def methods(self, wanted: Sequence[str], *, are_named: bool) -> list[str]:
        """The wanted methods that the file has. Raises GalaxyDiTError if one of them `are_named` and missing."""
        known = ", ".join(self.by_method)
        for name in wanted:
            if are_named and name not in self.by_method:
                raise refusal(OPTION, str(self.path), f"a file with {name!r}; it has {known}", "leave the method out")
        return [name for name in wanted if name in self.by_method]


def read_settings(path: Path) -> ScoredSettings:
    """Read a results.json. Raises GalaxyDiTError if it is none of `galaxydit compare`, or changed since."""
    try:
        reason = own_json(COMPARISON)(path)
    except (OSError, ValueError) as error:
        reason = short_reason(error, 120)
    if reason:
        expected = f"a results.json of `galaxydit compare` ({reason})"
        raise refusal(OPTION, str(path), expected, "pass the one in its folder")
    data = json.loads(path.read_text(encoding="utf-8"))
    settings: dict[str, list[Setting]] = {}
    for row in data["rows"]:
        settings.setdefault(row["method"], []).append(row["setting"])
    return ScoredSettings(path, settings, data["digest"])
