"""A job as understood: which videos to make and how. Plain data, the same for every worker."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from galaxydit.eval.jobs.record import BASELINE, Unit

SHOWN_DIFFERENCES = 12


@dataclass(frozen=True)
class Variant:
    """One way to generate. `options` are the method's own; `files` maps an option that names a file to its SHA-256."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Everything that results depend on.

    Attributes:
        model, revision: as `load_pipeline` takes them.
        dtype: name of a torch dtype, None for the model's own.
        settings: the fields of `GenerationSettings` that are given; the others are as recommended for the model.
        prompts: what the videos show.
        suite: where the prompts come from: name, count, seed, dimensions; empty for a file or a list.
        seeds: of every prompt; None where `samples` and `seed` make them.
        samples: seeds per prompt.
        seed: sample j of prompt i starts from the noise of seed + i * samples + j.
        variants: the first is the baseline.
        metrics: by name; None takes all that are installed and suit the video.
        lossless: whether mp4 files keep every RGB level.
        calibration: prompts for methods that measure something beforehand, none of them in `prompts`.
    """

    model: str
    revision: str | None
    dtype: str | None
    settings: Mapping[str, Any]
    prompts: tuple[str, ...]
    suite: Mapping[str, Any]
    seeds: tuple[int, ...] | None
    samples: int
    seed: int
    variants: tuple[Variant, ...]
    metrics: tuple[str, ...] | None
    lossless: bool
    calibration: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of all of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def units(self) -> tuple[Unit, ...]:
        """All units: prompt by prompt, seed by seed, the baseline before its variants."""
        return tuple(
            Unit(index, prompt, seed, sample, variant.name)
            for index, prompt in enumerate(self.prompts)
            for sample, seed in enumerate(self.seeds_of(index))
            for variant in self.variants
        )

    def seeds_of(self, prompt_index: int) -> tuple[int, ...]:
        """The seeds of one prompt. Counted on, so that no two videos of a job start from the same noise by default."""
        if self.seeds is not None:
            return self.seeds
        first = self.seed + prompt_index * self.samples
        return tuple(range(first, first + self.samples))


def baseline_of(unit: Unit) -> Unit:
    """The unit that this one is compared with."""
    return Unit(unit.prompt_index, unit.prompt, unit.seed, unit.sample, BASELINE)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two jobs as plain data, one line each, at most a dozen."""
    before, after = dict(_flatten(old)), dict(_flatten(new))
    changed = [name for name in dict.fromkeys([*before, *after]) if before.get(name, ...) != after.get(name, ...)]
    lines = [f"{name}: {_shown(before, name)} -> {_shown(after, name)}" for name in changed[:SHOWN_DIFFERENCES]]
    if len(changed) > SHOWN_DIFFERENCES:
        lines.append(f"and {len(changed) - SHOWN_DIFFERENCES} more")
    return lines


def _flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            name = value.get("name", index) if isinstance(value, Mapping) else index
            yield from _flatten(value, f"{path}[{name}]")
    else:
        yield path, data


def _shown(data: Mapping[str, Any], name: str) -> str:
    return repr(data[name]) if name in data else "not there"
