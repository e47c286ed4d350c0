"""A published benchmark as data: its dimensions, groups, ranges and model files.

A dimension is one of the qualities that a benchmark scores; the total is a weighted mean over groups of dimensions.
Upstream is the benchmark's own package. The cache folder is where upstream looks for model files (`cache_variable`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from galaxydit.errors import check_choice, refusal

SuiteName = Literal["vbench", "vbench2"]
CHECKPOINTS = "torch/hub/checkpoints"  # below the cache folder: where torch.hub and torchvision look


@dataclass(frozen=True)
class Weights:
    """A model file that upstream needs.

    Attributes:
        folder: folder of the file, relative to the cache folder.
        url: where upstream says the file is; with an `archive`, it is shown to users and not downloaded.
        licence: of the weights, or, if they have none, of the code that they belong to.
        name: file name, by default the last part of `url`.
        sha256: the published SHA-256 of the file at `url`, or its first digits; "" if none is published, and with an
            `archive`.
        archive: URL of a zip file that holds the file and is downloaded in place of `url`; "" without one. `member` is
            the path inside, or "*" for the whole archive without its top folder.
    """

    folder: str
    url: str
    licence: str
    name: str = ""
    sha256: str = ""
    archive: str = ""
    member: str = ""

    @property
    def path(self) -> str:
        """Path of the file, relative to the cache folder."""
        return f"{self.folder}/{self.name or self.url.rpartition('/')[2]}"


@dataclass(frozen=True)
class Dimension:
    """One dimension of a benchmark.

    Attributes:
        low, high: the scores that become 0 and 1 in the total: (score - low) / (high - low).
        weight: weight in the mean of its group.
        custom: whether upstream also scores videos of prompts that are not the benchmark's.
        samples: videos per prompt in the benchmark's protocol, without a filter.
        filtered: videos per prompt before the protocol's filter, which keeps the static videos alone; 0 if the protocol
            has no filter.
        video_scale: divisor that brings upstream's score of a single video to the scale of the dimension's score, such
            as 100 if only the former is in percent.
        counted: key, in a video's entry of upstream's results, of the number or the list of the items that upstream
            averages over, such as frames; "" if every video counts once.
        partial: whether upstream gives some videos no score on purpose.
        divisible: whether the score of all videos can be computed from the scores of parts of the videos.
        weights: model files that must be in the cache folder.
        hub: models that must be in the cache of huggingface_hub.
        needs: requirements that `galaxydit eval vbench setup` does not install, else "".
        proof: how far this project has run the dimension, such as "runs with random weights".
    """

    name: str
    group: str
    low: float = 0.0
    high: float = 1.0
    weight: float = 1.0
    custom: bool = True
    samples: int = 5
    filtered: int = 0
    video_scale: float = 1.0
    counted: str = ""
    partial: bool = False
    divisible: bool = True
    weights: tuple[Weights, ...] = ()
    hub: tuple[str, ...] = ()
    needs: str = ""
    proof: str = ""


@dataclass(frozen=True)
class Suite:
    """A benchmark.

    Attributes:
        title: name for people, such as "VBench 1.0".
        package, version: name of upstream on PyPI, and the version that names and numbers are taken from.
        full_info: name of the package's JSON file that lists the prompts with their dimensions.
        cache_variable: environment variable that names the cache folder; if it is not set, ~/.cache/PACKAGE.
        groups: weight of each group in the total, by name.
        prompt_in_name: number of the prompt's first characters that a video's file name has; None for all characters.
    """

    name: SuiteName
    title: str
    package: str
    version: str
    full_info: str
    cache_variable: str
    dimensions: Mapping[str, Dimension]
    groups: Mapping[str, float]
    prompt_in_name: int | None = None

    def select(self, names: Sequence[str]) -> tuple[Dimension, ...]:
        """The dimensions of these names, each once; raises GalaxyDiTError without names and for unknown ones."""
        if not names:
            raise refusal("dimensions", names, f"some of {', '.join(self.dimensions)}", "name at least one")
        for name in names:
            check_choice("dimensions", name, list(self.dimensions))
        return tuple(self.dimensions[name] for name in dict.fromkeys(names))
