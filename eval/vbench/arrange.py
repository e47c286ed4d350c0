"""Choose the videos of a dimension, and their file names.

VBench reads prompts, and the action of `human_action`, from file names: `{prompt}-{sample}.mp4`. For its own prompts
these names are fixed. Other prompts are passed separately, and the names only need to be legal and unique.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.published.vbench import SAMPLES, Dimension

Clips = Sequence[VideoRecord]
STANDARD, CUSTOM = "vbench_standard", "custom_input"  # VBench's names of its modes
LONGEST_NAME = 180  # bytes of a prompt in a file name; file systems allow 255 for all of it
ILLEGAL = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


@dataclass(frozen=True)
class Arrangement:
    """The videos of one dimension.

    Attributes:
        mode: STANDARD or CUSTOM.
        units: all that there were videos of; the dimension may take some of them only.
        files: unit by file name.
        prompts: prompt by file name, in custom mode only.
        entries: entries of the benchmark's prompt list that have videos.
        complete: whether every prompt of the dimension has all videos of the protocol.
    """

    mode: str
    units: tuple[str, ...]
    files: Mapping[str, str]
    prompts: Mapping[str, str] = field(default_factory=dict)
    entries: Sequence[Mapping[str, Any]] = ()
    complete: bool = False


def arrange(dimension: Dimension, clips: Clips, full_info: Sequence[Mapping[str, Any]]) -> Arrangement:
    """Choose mode, videos and names. `full_info` is VBench's list of prompts with dimensions.

    Raises GalaxyDiTError if the dimension takes only VBench's prompts and a clip has another one, or none has one of
    the dimension's.
    """
    known = {entry["prompt_en"] for entry in full_info}
    others = [clip.prompt for clip in clips if clip.prompt not in known]
    if not others:
        return _arrange_standard(dimension, clips, full_info)
    if dimension.custom:
        return _arrange_custom(clips)
    raise GalaxyDiTError(
        f"dimensions has {dimension.name!r}, which takes only the prompts of VBench, and the run has "
        f'{others[0][:80]!r}: leave the dimension out, or run a job with suite = "vbench"'
    )


def _arrange_standard(dimension: Dimension, clips: Clips, full_info: Sequence[Mapping[str, Any]]) -> Arrangement:
    entries = [entry for entry in full_info if dimension.name in entry["dimension"]]
    wanted = {entry["prompt_en"] for entry in entries}
    chosen = [clip for clip in clips if clip.prompt in wanted and clip.sample < SAMPLES]
    if not chosen:
        raise GalaxyDiTError(
            f"dimensions has {dimension.name!r}, and none of the run's prompts is one of its {len(wanted)}: run a job "
            f'with suite = "vbench" and dimensions = ["{dimension.name}"]'
        )
    present = {clip.prompt for clip in chosen}
    return Arrangement(
        mode=STANDARD,
        units=tuple(clip.unit for clip in clips),
        files={f"{clip.prompt}-{clip.sample}.mp4": clip.unit for clip in chosen},
        entries=[entry for entry in entries if entry["prompt_en"] in present],
        complete=len(chosen) == len(wanted) * SAMPLES,
    )


def _arrange_custom(clips: Clips) -> Arrangement:
    counts: Counter[str] = Counter()
    files, prompts = {}, {}
    for clip in clips:
        stem = legal_name(clip.prompt)
        key = stem.casefold()  # some file systems do not tell cases apart
        name = f"{stem}-{counts[key]}.mp4"
        counts[key] += 1
        files[name], prompts[name] = clip.unit, clip.prompt
    return Arrangement(CUSTOM, tuple(files.values()), files, prompts)


def legal_name(prompt: str) -> str:
    """A prompt as part of a file name on any file system: legal, at most 180 bytes, not empty."""
    text = prompt.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore")
    return ILLEGAL.sub("_", text).strip(" .") or "_"


def lay_out(arrangement: Arrangement, clips: Clips, run: Path, folder: Path) -> None:
    """Fill a new folder with links to a run's videos, or else copies; raises GalaxyDiTError if a video is missing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = {clip.unit: run.absolute() / str(clip.video) for clip in clips}
    for name, unit in arrangement.files.items():
        if not paths[unit].is_file():
            raise GalaxyDiTError(f"video {str(paths[unit])!r} of unit {unit} is not there: put it back")
        try:
            os.symlink(paths[unit], folder / name)
        except OSError:
            shutil.copyfile(paths[unit], folder / name)
