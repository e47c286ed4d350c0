"""Choose the videos of a run that a benchmark measures, their file names for each dimension, and their shares.

A share is a part of a dimension's videos that is measured by itself. VBench reads prompts, and the action of
`human_action`, from file names, `{prompt}-{sample}.mp4`; names of other prompts need only be legal and unique.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.published.suite import Dimension, Suite
from galaxydit.pipelines.runs import Unit

Clips = Sequence[VideoRecord]
Selection = Mapping[str, Clips]
"""The videos that count, by variant in the job's order: videos whose prompt and seed have a video in every variant."""
# upstream's names of its modes
STANDARD = "vbench_standard"
CUSTOM = "custom_input"
LONGEST_NAME = 180  # bytes of a prompt in a file name; file systems allow 255 for all of it
ILLEGAL = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


def select_videos(root: str, records: Sequence[VideoRecord], variants: Sequence[str]) -> Selection:
    """Records by variant of prompts and seeds with a video in each of `variants`, sorted by these.

    Raises GalaxyDiTError if there are none.
    """
    videos_of: dict[str, dict[tuple[int, int], VideoRecord]] = {variant: {} for variant in variants}
    for record in records:
        if record.video is not None and record.variant in videos_of:
            videos_of[record.variant][record.pair] = record
    pairs = set.intersection(*map(set, videos_of.values()))
    if not pairs:
        counts = ", ".join(f"{variant} {len(videos)}" for variant, videos in videos_of.items())
        raise GalaxyDiTError(
            f"{root} has no prompt and seed with a video in every variant (videos: {counts}): let "
            "`galaxydit eval run` make some first"
        )
    return {variant: [videos[pair] for pair in sorted(pairs)] for variant, videos in videos_of.items()}


@dataclass(frozen=True)
class Arrangement:
    """The videos of one dimension, or of a share of it."""

    mode: str  # `STANDARD` if all prompts are the benchmark's own, else `CUSTOM`
    files: Mapping[str, str]  # unit id by file name
    prompts: Mapping[str, str] = field(default_factory=dict)  # by file name; empty in the standard mode
    entries: Sequence[Mapping[str, Any]] = ()  # of the benchmark's prompt list, with videos; empty in the custom mode
    static_filter: bool = False  # only the first five static videos of each prompt count
    complete: bool = False  # all videos and the filter of the benchmark's protocol


def arrange(
    suite: Suite,
    dimension: Dimension,
    clips: Clips,
    full_info: Sequence[Mapping[str, Any]],
    static_filter: bool | None = None,
) -> Arrangement:
    """The arrangement of one variant's `clips` for one dimension; `full_info` is upstream's list of prompts.

    `static_filter` is by default the protocol's for the benchmark's own prompts. Raises GalaxyDiTError if the dimension
    takes no other prompts, or none of the clips'.
    """
    known = {entry["prompt_en"] for entry in full_info}
    others = [clip.prompt for clip in clips if clip.prompt not in known]
    if static_filter is None:
        static_filter = not others
    filtered = bool(dimension.filtered) and static_filter
    if not others:
        return _arrange_standard(suite, dimension, clips, full_info, filtered)
    if dimension.custom:
        return _arrange_custom(clips, filtered)
    raise GalaxyDiTError(
        f"dimensions has {dimension.name!r}, which takes only the prompts of {suite.title}, and the run has "
        f"{others[0][:80]!r}: leave the dimension out, or run a job with the prompts that `galaxydit eval vbench "
        f"prompts --suite {suite.name} --dimensions {dimension.name}` prints"
    )


def _arrange_standard(
    suite: Suite, dimension: Dimension, clips: Clips, full_info: Sequence[Mapping[str, Any]], filtered: bool
) -> Arrangement:
    entries = [entry for entry in full_info if dimension.name in entry["dimension"]]
    wanted = {entry["prompt_en"] for entry in entries}
    samples = dimension.filtered if filtered else dimension.samples
    chosen = []
    for clip in clips:
        if clip.prompt in wanted and clip.sample < samples:
            chosen.append(clip)
    if not chosen:
        raise GalaxyDiTError(
            f"dimensions has {dimension.name!r}, and none of the run's prompts is one of its {len(wanted)}: run a job "
            f"with the prompts that `galaxydit eval vbench prompts --suite {suite.name} --dimensions {dimension.name}` "
            "prints"
        )
    files = {}
    for clip in chosen:
        files[f"{clip.prompt[: suite.prompt_in_name]}-{clip.sample}.mp4"] = clip.unit
    present = {clip.prompt for clip in chosen}
    return Arrangement(
        mode=STANDARD,
        files=files,
        entries=[entry for entry in entries if entry["prompt_en"] in present],
        static_filter=filtered,
        complete=len(chosen) == len(wanted) * samples and filtered == bool(dimension.filtered),
    )


def _arrange_custom(clips: Clips, filtered: bool) -> Arrangement:
    counts: Counter[str] = Counter()
    files = {}
    prompts = {}
    for clip in clips:
        stem = legal_name(clip.prompt)
        key = stem.casefold()  # some file systems do not tell cases apart
        name = f"{stem}-{counts[key]}.mp4"
        counts[key] += 1
        files[name] = clip.unit
        prompts[name] = clip.prompt
    return Arrangement(CUSTOM, files, prompts, static_filter=filtered)


def shares(suite: Suite, arrangement: Arrangement, size: int) -> Iterator[Arrangement]:
    """Cut a dimension's arrangement into shares of `size` videos.

    Videos of one prompt stay together, because the static filter and some dimensions look at all of them.
    """
    group: list[str] = []
    for _, names in groupby(arrangement.files, _stem):
        group += names
        if len(group) >= size:
            yield _share(suite, arrangement, group)
            group = []
    if group:
        yield _share(suite, arrangement, group)


def _stem(name: str) -> str:
    return name.rpartition("-")[0].casefold()


def _share(suite: Suite, arrangement: Arrangement, names: Sequence[str]) -> Arrangement:
    files = {}
    prompts = {}
    for name in names:
        files[name] = arrangement.files[name]
        if name in arrangement.prompts:
            prompts[name] = arrangement.prompts[name]
    stems = {_stem(name) for name in names}
    entries = []
    for entry in arrangement.entries:
        if entry["prompt_en"][: suite.prompt_in_name].casefold() in stems:
            entries.append(entry)
    return replace(arrangement, files=files, prompts=prompts, entries=entries)


def legal_name(prompt: str) -> str:
    """A prompt as part of a file name on any file system: at most 180 bytes, not empty."""
    text = prompt.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore")
    return ILLEGAL.sub("_", text).strip(" .") or "_"


@dataclass(frozen=True)
class Plan:
    """Makes the units with which a suite measures a run."""

    suite: Suite
    version: str  # of the installed benchmark
    full_info: Sequence[Mapping[str, Any]]  # of `read_full_info`
    share: int  # least videos in a share but the last

    def units(self, key: tuple[str, str], arrangement: Arrangement, selection: Selection) -> list[Unit]:
        """A unit for each share of the (variant, dimension) `key`.

        Data include the hash of each video, so that a video that was made again is measured again.
        """
        variant, name = key
        dimension = self.suite.dimensions[name]
        clips = {clip.unit: clip for clip in selection[variant]}
        size = self.share if dimension.divisible else len(arrangement.files)
        units = []
        for index, part in enumerate(shares(self.suite, arrangement, size)):
            videos = {}
            for file, unit in part.files.items():
                videos[file] = {"unit": unit, "path": clips[unit].video, "sha256": clips[unit].video_sha256}
            data = {
                "suite": self.suite.name,
                "version": self.version,
                "variant": variant,
                "dimension": name,
                "mode": part.mode,
                "static_filter": part.static_filter,
                "prompts": part.prompts,
                "entries": part.entries,
                "videos": videos,
            }
            units.append(Unit(f"{name.lower()}.{index}", data))
        return units
