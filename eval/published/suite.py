"""A published benchmark as data: its dimensions, groups, ranges and model files.

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
    """A model file.

    Attributes:
        folder: folder of the file, relative to the cache folder.
        url: where upstream downloads the file.
        licence: of the weights, or, if they have none, of the code that they belong to.
        name: file name, by default the last part of the URL.
        sha256: the published SHA-256 of the download, or its first digits; "" if none is published.
        archive: URL of a zip file that holds the file, if upstream takes it from one; `member` is the path inside, or
            "*" for the whole archive without its top folder.
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
        low, high: normalised score = (score - low) / (high - low).
        weight: weight in the mean of its group.
        custom: whether upstream also scores videos of prompts that are not the benchmark's.
        samples: videos per prompt in the protocol.
        filtered: videos per prompt where the protocol keeps the static videos alone, 0 where it keeps all videos.
        video_scale: score of a single video / score of the dimension at equal quality, such as 100 for percent.
        counted: key in a video's entry of upstream's results. Its value is the number, or the list, of the items that
            upstream averages over, such as frames; "" if every video counts once.
        partial: whether upstream gives some videos no score on purpose.
        divisible: whether the score of all videos can be computed from the scores of shares of them.
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
        package, version: name on PyPI, and the version that names and numbers are taken from.
        full_info: file of the package that lists the prompts with their dimensions.
        cache_variable: environment variable that names the cache folder; if it is not set, ~/.cache/PACKAGE.
        groups: weights of the groups in the total.
        prompt_in_name: number of characters of the prompt in a video's file name, None for all.
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
