"""A published benchmark as data: its dimensions, groups, ranges and model files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from galaxydit.errors import check_choice, listed, refusal

SuiteName = Literal["vbench", "vbench2"]
CHECKPOINTS = "torch/hub/checkpoints"  # below the cache folder: where torch.hub and torchvision look


@dataclass(frozen=True)
class Weights:
    """A model file that upstream, the benchmark's own package, needs."""

    folder: str  # below the cache folder
    url: str  # shown and not downloaded where there is an `archive`
    licence: str  # of the weights, else of their code
    name: str = ""  # by default the last part of `url`
    sha256: str = ""  # published first digits, "" without
    archive: str = ""  # URL of a zip file to download instead
    member: str = ""  # path in the archive, or "*" for all of it; extracted without the archive's top folder

    @property
    def path(self) -> str:
        """Path below the cache folder."""
        return f"{self.folder}/{self.name or self.url.rpartition('/')[2]}"


@dataclass(frozen=True)
class Dimension:
    """One quality that a benchmark scores; it counts (score - low) / (high - low) in the total."""

    name: str
    group: str
    low: float = 0.0
    high: float = 1.0
    weight: float = 1.0  # in the mean of its group
    custom: bool = True  # whether upstream scores videos of other prompts
    samples: int = 5  # videos per prompt in the protocol
    filtered: int = 0  # the same before the protocol's filter for static videos; 0 without a filter
    video_scale: float = 1.0  # score of a video / of the dimension, such as 100 for percent
    counted: str = ""  # key in upstream's results of the items that a video's score is a mean of
    partial: bool = False  # some videos have no score on purpose
    divisible: bool = True  # the score follows from those of parts of the videos
    weights: tuple[Weights, ...] = ()  # in the cache folder
    hub: tuple[str, ...] = ()  # models in the cache of huggingface_hub
    needs: str = ""  # beyond `galaxydit eval vbench setup`
    proof: str = ""  # how far this project has run it


@dataclass(frozen=True)
class Suite:
    name: SuiteName
    title: str  # for people, such as "VBench 1.0"
    package: str  # of upstream on PyPI
    version: str  # that names and numbers are taken from
    full_info: str  # JSON file of the package: prompts with their dimensions
    cache_variable: str  # names the cache folder, by default ~/.cache/PACKAGE
    dimensions: Mapping[str, Dimension]
    groups: Mapping[str, float]  # weights in the total
    prompt_in_name: int | None = None  # characters of the prompt in a video's file name; None for all

    def select(self, names: Sequence[str]) -> tuple[Dimension, ...]:
        """The dimensions of these names, each once. Raises GalaxyDiTError without names and for unknown ones."""
        names = listed("dimensions", names)
        if not names:
            raise refusal("dimensions", names, f"some of {', '.join(self.dimensions)}", "name at least one")
        for name in names:
            check_choice("dimensions", name, list(self.dimensions))
        return tuple(self.dimensions[name] for name in dict.fromkeys(names))
