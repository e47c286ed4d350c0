"""A published benchmark as data: its dimensions, groups, ranges and model files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from galaxydit.errors import check_choice, refusal

SuiteName = Literal["vbench", "vbench2"]
CHECKPOINTS = "torch/hub/checkpoints"  # below the cache folder: what torch.hub and torchvision look for


@dataclass(frozen=True)
class Weights:
    """A model file.

    Attributes:
        folder: below the cache folder.
        url: where upstream downloads it.
        licence: of the weights, or where they have none, of the code that they belong to.
        name: file name, by default the URL's last part.
        sha256: the published SHA-256 of the download, or its first digits; "" where none is published.
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
        """Below the cache folder."""
        return f"{self.folder}/{self.name or self.url.rpartition('/')[2]}"


@dataclass(frozen=True)
class Dimension:
    """One dimension of a benchmark.

    Attributes:
        low, high: normalised score = (score - low) / (high - low).
        weight: weight in the mean of its group.
        custom: whether it takes other prompts than the benchmark's.
        samples: videos per prompt in the protocol.
        filtered: videos per prompt from which the protocol chooses static ones, 0 where it does not.
        video_scale: scale of a single video's score, relative to the dimension's.
        counted: entry of a video, in upstream's results, that counts what upstream averages over, such as frames, or
            lists it; "" where every video counts once.
        partial: whether upstream leaves out videos on purpose.
        divisible: whether the score of all videos follows from those of shares.
        weights: model files that must be in the cache folder.
        hub: models that must be in the cache of huggingface_hub.
        needs: what `galaxydit eval vbench setup` does not install, else "".
        proof: what was run of it so far.
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
        package, version: on PyPI; the version that the numbers are those of.
        full_info: the package's list of prompts with dimensions.
        cache_variable: environment variable with the folder of model files; by default ~/.cache/PACKAGE.
        groups: weights of the groups in the total.
        prompt_in_name: characters of the prompt in a video's file name, None for all.
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
