"""The videos of a run that a suite (VBench or VBench-2.0) measures, and their division into shares.

A share is a part of the videos of one dimension and one variant of the run's job; it is measured by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.published.suite import Suite
from galaxydit.eval.vbench.arrange import Arrangement, shares
from galaxydit.pipelines.runs import Unit

SHARE = 100  # videos; loading a dimension's models takes as long as a few of them

Selection = Mapping[str, Sequence[VideoRecord]]
"""The videos that count, by variant in the job's order: videos whose prompt and seed have a video in every variant."""


@dataclass
class Plan:
    """Makes the units of work with which a suite measures a run.

    Attributes:
        version: version of the installed benchmark.
        full_info: the benchmark's list of prompts; an entry has the prompt ("prompt_en") and the names of its
            dimensions ("dimension").
        share: least number of videos in a share; only the last share of a dimension may have fewer.
    """

    suite: Suite
    version: str
    full_info: Sequence[Mapping[str, Any]]
    share: int = SHARE

    def units(self, key: tuple[str, str], arrangement: Arrangement, selection: Selection) -> list[Unit]:
        """One unit of work for each share of `key`, the names of one variant and one dimension.

        `arrangement` has the videos that the dimension measures, `selection` the records of all videos that count, by
        variant. A unit's data have the keys "suite", "version" (of the benchmark), "variant" and "dimension" (names);
        "mode", "static_filter", "prompts" and "entries", the fields of the share's `Arrangement`; and "videos", by file
        name a mapping with "unit" (the video's id), "path" and "sha256", so that a video that was made again is
        measured again.
        """
        variant, name = key
        dimension, clips = self.suite.dimensions[name], {clip.unit: clip for clip in selection[variant]}
        size = self.share if dimension.divisible else len(arrangement.files)
        return [
            Unit(
                f"{name.lower()}.{index}",
                {
                    "suite": self.suite.name,
                    "version": self.version,
                    "variant": variant,
                    "dimension": name,
                    "mode": part.mode,
                    "static_filter": part.static_filter,
                    "prompts": part.prompts,
                    "entries": part.entries,
                    "videos": {
                        file: {"unit": unit, "path": clips[unit].video, "sha256": clips[unit].video_sha256}
                        for file, unit in part.files.items()
                    },
                },
            )
            for index, part in enumerate(shares(self.suite, arrangement, size))
        ]


def select_videos(root: str, records: Sequence[VideoRecord], variants: Sequence[str]) -> Selection:
    """The records of the videos that count, by variant: of the prompts and seeds with a video in each of `variants`.

    The records of a variant are sorted by prompt index and seed. Raises GalaxyDiTError, which names the run `root`,
    if there are none.
    """
    filmed = [record for record in records if record.video is not None]
    done = {variant: {record.pair: record for record in filmed if record.variant == variant} for variant in variants}
    pairs = set.intersection(*map(set, done.values()))
    if not pairs:
        counts = ", ".join(f"{variant} {len(videos)}" for variant, videos in done.items())
        raise GalaxyDiTError(
            f"{root} has no prompt and seed with a video in every variant (videos: {counts}): let "
            "`galaxydit eval run` make some first"
        )
    return {variant: [videos[pair] for pair in sorted(pairs)] for variant, videos in done.items()}
