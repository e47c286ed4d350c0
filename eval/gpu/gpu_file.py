"""The JSON of the measurements on one GPU, which is written after each of them, so that a later call continues it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from galaxydit.errors import refusal
from galaxydit.files import split_digest
from galaxydit.pipelines.own_files import check_replaceable, own_json
from galaxydit.pipelines.written_by import GPU, write_own_json

WEIGHTS = "random, of the true shapes: the seconds do not depend on them, and the videos show no quality"


@dataclass
class GpuFile:
    """The measurements of one device.

    `data` holds "device", "settings", "weights", "sessions" (a call of the command each, with its commit, versions and
    clocks) and "rows", of which each names its "part", "variant", "round" and "session".
    """

    path: Path
    data: dict[str, Any]

    @classmethod
    def open(cls, path: Path, device: str, settings: dict[str, Any], *, force: bool = False) -> "GpuFile":
        """The file at `path`, to be continued; a new one if none is there, or with `force`.

        Raises GalaxyDiTError for a file of another program, of another device and of other settings.
        """
        check_replaceable(path, "--out", own_json(GPU), force=force)
        new: dict[str, Any] = {"device": device, "settings": settings, "weights": WEIGHTS, "sessions": [], "rows": []}
        if force or not path.exists():
            return cls(path, new)
        data, _ = split_digest(json.loads(path.read_text(encoding="utf-8")))
        for name in ("device", "settings"):
            if data[name] != new[name]:
                expected = f"a file of the {name} {new[name]} (it has {data[name]})"
                raise refusal("--out", str(path), expected, "pass another --out, or --force to begin anew")
        return cls(path, data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.data["rows"]
        return rows

    def find(self, part: str, variant: str, turn: int) -> dict[str, Any] | None:
        """The row of a measurement, finished or not."""
        for row in self.rows:
            if (row["part"], row["variant"], row["round"]) == (part, variant, turn):
                return row
        return None

    def begin(self, session: dict[str, Any]) -> None:
        self.data["sessions"].append(session | {"left_out": []})
        self.write()

    def add(self, part: str, variant: str, turn: int, measured: dict[str, Any]) -> None:
        """Write a row in place of an unfinished one."""
        before = self.find(part, variant, turn)
        if before is not None:
            self.rows.remove(before)
        place = {"part": part, "variant": variant, "round": turn, "session": len(self.data["sessions"]) - 1}
        self.rows.append(place | measured)
        self.write()

    def leave_out(self, part: str, variant: str, why: str) -> None:
        self.data["sessions"][-1]["left_out"].append({"part": part, "variant": variant, "why": why})
        self.write()

    def end(self, clocks: dict[str, str] | None) -> None:
        self.data["sessions"][-1]["clocks_after"] = clocks
        self.write()

    def write(self) -> None:
        write_own_json(self.path, GPU, self.data)
