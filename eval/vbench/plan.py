"""The videos of a run that VBench or VBench-2.0 measures, and their division into shares."""

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
    """Makes the units with which a suite measures a run."""

    suite: Suite
    version: str  # of the installed benchmark
    full_info: Sequence[Mapping[str, Any]]  # of `read_full_info`
    share: int = SHARE  # least videos in a share but the last

    def units(self, key: tuple[str, str], arrangement: Arrangement, selection: Selection) -> list[Unit]:
        """A unit for each share of the (variant, dimension) `key`.

        Data include the hash of each video, so that a video that was made again is measured again.
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
                    **{field: getattr(part, field) for field in ("mode", "static_filter", "prompts", "entries")},
                    "videos": {
                        file: {"unit": unit, "path": clips[unit].video, "sha256": clips[unit].video_sha256}
                        for file, unit in part.files.items()
                    },
                },
            )
            for index, part in enumerate(shares(self.suite, arrangement, size))
        ]


def select_videos(root: str, records: Sequence[VideoRecord], variants: Sequence[str]) -> Selection:
    """Records by variant of prompts and seeds with a video in each of `variants`, sorted by these.

    Raises GalaxyDiTError if there are none.
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
