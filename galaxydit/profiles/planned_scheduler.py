"""Schedulers that always sample at planned noise levels; they are copied, pickled and saved as their plain class is."""

import json
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from galaxydit.errors import DataWarning, check_ascending, refusal
from galaxydit.foreign_text import logger_of
from galaxydit.policies.general_schedule import unshifted
from galaxydit.validation import MOST_VALUES

logger = logger_of(__name__)

# `from_config` keeps private entries of a configuration. The entry of a file has another name, so that a plain
# scheduler made from the configuration of a planned one, and then saved, is read as a plain one.
LEVELS, SAVED_LEVELS = "_noise_levels", "_saved_noise_levels"


class AtNoiseLevels:
    """The part of a scheduler class that ignores the number of steps, and takes the levels of its configuration."""

    config: Any

    @property
    def noise_levels(self) -> tuple[float, ...]:
        """The planned levels, falling; empty for a scheduler of this class that was made without them."""
        return tuple(self.config.get(LEVELS, ()))

    def set_timesteps(self, num_inference_steps: int | None = None, device: Any = None, **kwargs: Any) -> None:
        plain: Any = super()
        if not self.noise_levels:
            plain.set_timesteps(num_inference_steps, device=device, **kwargs)
            return
        sigmas = unshifted(np.array(self.noise_levels), shift_of(self))
        plain.set_timesteps(device=device, **kwargs | {"sigmas": sigmas})
        self.set_begin_index(0)  # type: ignore[attr-defined]  # two levels may have one timestep

    def save_config(self, *args: Any, **kwargs: Any) -> None:
        """Save as the plain class, which diffusers can load without this package."""
        name = type(self).__name__
        text = f"galaxydit: diffusers will load this as a {name} at its own noise levels"
        cure = "galaxydit.pipelines.loading.load_pipeline loads it at the planned ones"
        warnings.warn(f"{text}; {cure}", DataWarning, stacklevel=2)
        super().save_config(*args, **kwargs)  # type: ignore[misc]

    def to_json_string(self) -> str:
        content = json.loads(super().to_json_string())  # type: ignore[misc]
        if LEVELS in content:
            content[SAVED_LEVELS] = content.pop(LEVELS)
        return json.dumps(content, indent=2, sort_keys=True) + "\n"

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        """For `copy` and `pickle`: the plain class, because that of the instance is made in each process."""
        plain = type(self).__bases__[1]
        return _blank, (plain,), self.__getstate__()


def at_levels(scheduler: Any, levels: Sequence[float]) -> Any:
    """A copy of a scheduler that always samples at these noise levels, falling in (0, 1]."""
    config = {name: value for name, value in scheduler.config.items() if name != SAVED_LEVELS}
    return _planned(_plain_class(scheduler)).from_config(config | {LEVELS: list(levels)})


def without_levels(scheduler: Any) -> Any:
    """The scheduler; of a planned one, a scheduler of the plain class with its configuration."""
    if not isinstance(scheduler, AtNoiseLevels):
        return scheduler
    config = {name: value for name, value in scheduler.config.items() if name != LEVELS}
    return _plain_class(scheduler).from_config(config)


def with_saved_levels(scheduler: Any) -> Any:
    """The scheduler of a loaded pipeline, planned if the saved one was. Raises GalaxyDiTError for damaged levels."""
    levels = getattr(scheduler, "config", {}).get(SAVED_LEVELS)
    if levels is None:
        return scheduler
    if not isinstance(levels, list) or not 0 < len(levels) <= MOST_VALUES:
        expected = f"a list of 1 to {MOST_VALUES} noise levels"
        cure = "remove it from scheduler_config.json, or save the pipeline again"
        raise refusal(SAVED_LEVELS, levels, expected, cure)
    check_ascending(SAVED_LEVELS, [*reversed(levels), 1.0], strictly=False)
    logger.warning("the scheduler was saved with planned noise levels, so it always takes %s steps", len(levels))
    return at_levels(scheduler, levels)


def shift_of(scheduler: Any) -> float:
    """The fixed flow shift by which `set_timesteps(sigmas=...)` moves sigmas; 1 without one."""
    return float(getattr(scheduler, "shift", None) or scheduler.config.get("flow_shift") or 1.0)


def _plain_class(scheduler: Any) -> Any:
    kind = type(scheduler)
    return kind.__bases__[1] if issubclass(kind, AtNoiseLevels) else kind


@cache
def _planned(plain: type) -> Any:
    """The class `plain` with `AtNoiseLevels`, under its own name, which diffusers writes to model_index.json."""
    names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    return type(plain.__name__, (AtNoiseLevels, plain), names)


def _blank(plain: type) -> Any:
    kind = _planned(plain)
    return kind.__new__(kind)
