"""Read a job from a TOML file, and check all of it before anything runs."""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import StringConstraints

from galaxydit.calibration.prompt_files import read_lines
from galaxydit.errors import GalaxyDiTError, did_you_mean, refusal
from galaxydit.eval.jobs.gates import LOST, WORST, Gates, check_names
from galaxydit.eval.jobs.job import (
    FEWER_STEPS,
    OWN,
    PLAIN,
    PLUGIN,
    Job,
    Seed,
    Text,
    Texts,
    Variant,
    calibration_of,
    options_of,
)
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.method_registry import declared, load_method, slug_of
from galaxydit.eval.methods.plugins_behind import plugins_behind
from galaxydit.eval.published.vbench import PACKAGE, vbench_prompts
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.model_names import INDEX, check_model
from galaxydit.pipelines.runs.unit import flatten
from galaxydit.pipelines.settings import MOST
from galaxydit.request import Request
from galaxydit.validation import parse

MOST_PROMPTS = 10_000  # drawing this many captions takes a minute
MOST_STEPS = MOST["steps"]
SUITES = {"wan-tiny": ("count", "seed"), PACKAGE: ("count", "dimensions")}  # with the options of each
SOURCES = ("file", "texts", "suite")
TABLES = ("prompts", "variants", "calibration")  # each has a reader of its own
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,39}")
CURE = "see `galaxydit eval run --example`"


@dataclass(frozen=True)
class PromptKeys:
    """Keys of a table of prompts, with exactly one of `file`, `texts` and `suite`."""

    file: Text | None = None  # of `calibration.prompt_files.read_lines`
    texts: Texts | None = None
    suite: Literal[tuple(SUITES)] | None = None  # type: ignore[valid-type]
    count: Annotated[int, Interval(ge=1, le=MOST_PROMPTS)] | None = None  # the first ones; required for "wan-tiny"
    seed: Seed | None = None  # of "wan-tiny", 0 by default
    dimensions: Texts | None = None  # of "vbench", by default all
    # of the prompts, joined by line feeds in UTF-8
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None
    apart_from: Text | None = None  # file of prompts that must not be among these


def read_job(path: Path) -> Job:
    """The job in a file, with paths relative to its folder.

    Raises FileNotFoundError for a missing job file, GalaxyDiTError with file, key and value for wrong content.
    """
    if not path.is_file():
        raise FileNotFoundError(one_line(f"{path} is no file: check the spelling; {CURE}"))
    with named(f"{path} is not TOML: ", f"; {CURE}"):
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    with named(f"{path}: "):
        return job_of(data, path.parent)


@contextmanager
def named(place: str, cure: str = "") -> Iterator[None]:
    """Turn ValueError and RecursionError into GalaxyDiTError with `place`, its text and `cure`."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{place}{error}{cure}") from error


def job_of(data: dict[str, Any], folder: Path) -> Job:
    """The job in the parsed file. Raises as `read_job`."""
    job: Job = parse(Job, data | {name: [] for name in TABLES if name in data}, "", CURE)
    if "seeds" in data and ("samples" in data or "seed" in data):
        raise GalaxyDiTError("seeds is given together with samples or seed; leave one of them out")
    for side in ("height", "width"):
        if (getattr(job, side) or 0) % 2 and job.video != "lossless":
            raise refusal(side, data[side], "an even number", 'take one, or video = "lossless"')
    _check_metrics(job)
    tables = parse(dict[str, dict[str, Any]], data.get("variants", {}), "variants", CURE)
    variants = (
        *((PLAIN,) if job.baseline else ()),
        *(_variant(name, options, folder) for name, options in tables.items()),
    )
    if not variants:
        raise GalaxyDiTError("variants is missing, and baseline=False leaves no video to make; add a variant")
    read: dict[str, Any] = {"variants": variants, "prompts": _prompts("prompts", data["prompts"], folder)}
    if "calibration" in data:
        read["calibration"] = _prompts("calibration", data["calibration"], folder)
    for name in ("model", "base", "lora", "lora_2"):
        path = folder / (getattr(job, name) or "")
        if path.is_file() or (path / INDEX).is_file():
            read[name] = str(path.resolve())
    job = replace(job, **read)
    for variant in variants:
        if variant.method == FEWER_STEPS and job.steps is not None and variant.options["steps"] > job.steps:
            expected = f"at most the baseline's steps={job.steps}"
            raise refusal(f"variants.{variant.name}.steps", variant.options["steps"], expected, "lower it")
    needing = [variant.name for variant in variants if calibration_of(variant.method)]
    if needing and not job.calibration:
        raise GalaxyDiTError(
            f"calibration is missing: variants.{needing[0]} measures something beforehand, on prompts that are not in "
            "the job; add a table like prompts"
        )
    if job.calibration and not needing:
        raise GalaxyDiTError("calibration has no effect, since no variant measures anything; leave it out")
    names = [variant.name for variant in variants if variant.name != BASELINE]
    for name in job.gates.variants:
        if name not in names:
            raise refusal("gates.variants", name, f"one of {', '.join(names)}", "name variants of the job")
    _check_apart(job.calibration, job.prompts, "calibration", "prompts")
    check_model(job.model, job.base)
    return job


def _check_metrics(job: Job) -> None:
    if job.metrics == () and job.baseline:
        expected = "at least one metric, because the baseline is there to compare with"
        raise refusal("metrics", [], expected, "name metrics, or set baseline = false")
    if job.metrics is not None:
        from galaxydit.eval.metrics import select

        for metric in select(job.metrics):
            if metric.needs_reference and not job.baseline:
                expected = "metrics without a reference, because baseline=False leaves nothing to compare with"
                raise refusal("metrics", metric.name, expected, "leave it out, or set baseline = true")
    if job.gates != Gates():
        check_names(job.gates)
        for side, limits in (("min", job.gates.min), ("max", job.gates.max)):
            for name in limits:
                _check_measured(job, f"gates.{side}", name)


def _check_measured(job: Job, field: str, name: str) -> None:
    """Raise GalaxyDiTError if a gate is for a figure that the job does not measure."""
    from galaxydit.eval.metrics import METRICS

    metric = METRICS.get(figure := name.removeprefix(WORST))
    if metric is not None and job.metrics is not None and metric.name not in job.metrics:
        expected = f"a metric that the job measures ({', '.join(job.metrics) or 'none'})"
        raise refusal(field, name, expected, f'add "{metric.name}" to metrics')
    kind = "figure" if metric is None else "metric"
    compares = metric.needs_reference if metric else figure.endswith("_speedup") or name.startswith(LOST)
    if compares and not job.baseline:
        raise refusal(field, name, f"a {kind} without a reference, because baseline=False", "set baseline = true")


def _prompts(table: str, data: dict[str, Any], folder: Path) -> tuple[str, ...]:
    keys: PromptKeys = parse(PromptKeys, data, table, CURE)
    prompts = _listed_prompts(table, keys, data, folder)
    actual = hashlib.sha256("\n".join(prompts).encode()).hexdigest()
    if keys.sha256 not in (None, actual):
        raise refusal(f"{table}.sha256", keys.sha256, f"{actual}, that of the prompts", "restore the prompts")
    if keys.apart_from is not None:
        others = _read_prompts(folder / keys.apart_from, f"{table}.apart_from")
        _check_apart(prompts, others, table, f"{table}.apart_from")
    return prompts


def _check_apart(prompts: Iterable[str], others: Iterable[str], name: str, other_name: str) -> None:
    if shared := sorted(set(prompts) & set(others)):
        raise GalaxyDiTError(f"{name} has {shared[0]!r}, which is also in {other_name}; take others")


def _listed_prompts(table: str, keys: PromptKeys, data: dict[str, Any], folder: Path) -> tuple[str, ...]:
    sources = [name for name in SOURCES if name in data]
    if len(sources) != 1:
        given = " and ".join(sources) or "none of them"
        raise GalaxyDiTError(f"{table} has {given}: expected one of {', '.join(SOURCES)}; {CURE}")
    for name in data:
        if name not in (*SOURCES, "sha256", "apart_from", *SUITES.get(keys.suite or "", ("count",))):
            of = f'suite = "{keys.suite}"' if keys.suite else sources[0]
            raise GalaxyDiTError(f"{table}.{name}={data[name]!r} has no effect with {of}; leave it out")
    if keys.suite is None:
        prompts = keys.texts or _read_prompts(folder / data["file"], f"{table}.file")
        if keys.count is not None and keys.count > len(prompts):
            raise refusal(f"{table}.count", keys.count, f"at most {len(prompts)}, the number of prompts", "lower it")
        return tuple(prompts[: keys.count])
    if keys.suite == PACKAGE:
        with named(f"{table}."):
            return vbench_prompts(keys.count, keys.dimensions)
    if keys.count is None:
        raise GalaxyDiTError(f"{table}.count is missing: expected a whole number from 1 to {MOST_PROMPTS}")
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    return tuple(draw_prompts(keys.count, keys.seed or 0))


def _read_prompts(path: Path, place: str) -> tuple[str, ...]:
    if not path.is_file():
        raise refusal(place, str(path), "a text file", "check the spelling")
    return parse(Texts, read_lines(path, place), place, "write different ones, one a line")


def _variant(name: str, data: dict[str, Any], folder: Path) -> Variant:
    place = f"variants.{name}"
    if name == BASELINE:
        raise GalaxyDiTError(f"{place} is made unless baseline = false; leave it out")
    if not VARIANT_NAME.fullmatch(name):
        raise GalaxyDiTError(
            f'variants."{name}" is the name of files: expected up to 40 small letters, digits and "._+-", a letter or '
            "digit first; put the method's name into method"
        )
    options, files = dict(data), {}
    method = options.pop("method", name)
    if method not in (known := [slug_of(listed) for listed in declared()]):
        what = f"method={method!r}" if "method" in data else f"method is missing, and {name!r}"
        cure = f"{CURE}, and add one of your own by --plugin{did_you_mean(method, known)}"
        raise GalaxyDiTError(f"{place}.{what} is no method; {cure}")
    read = asdict(parse(options_of(method), options, place, CURE))
    options = {key: read[key] for key in options}  # 2 for 2.0 is the same setting
    for key, value in flatten(options, place):
        if isinstance(value, int) and abs(value) > MOST_STEPS:  # of which methods make lists of steps
            raise refusal(key, value, f"a whole number of at most {MOST_STEPS}", CURE)
    if method == PLUGIN:
        with named(f"{place}."):
            Request(**options)  # raises for values out of range and options that contradict each other
    if "profile" in options:
        if (profile := folder / options["profile"]).is_file():
            options["profile"] = str(profile.resolve())
            files["profile"] = hashlib.sha256(profile.read_bytes()).hexdigest()
        from galaxydit.profiles.profile_registry import load_profile

        with named(f"{place}."):
            load_profile(options["profile"])
    files |= plugins_behind(None if method in OWN else load_method(method), options.get("profile"))
    return Variant(name, method, options, files)
