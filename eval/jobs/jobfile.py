"""From a TOML file to a job, checked wholly before anything runs."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval

from galaxydit.calibration.prompt_files import read_lines
from galaxydit.errors import GalaxyDiTError, did_you_mean, refusal
from galaxydit.eval.compare.registry import METHOD_SOURCES, slug_of
from galaxydit.eval.jobs.job import FEWER_STEPS, Job, Seed, Text, Texts, Variant, needs_calibration, options_of
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.published.vbench import PACKAGE, vbench_prompts
from galaxydit.pipelines.model_names import local_folder
from galaxydit.validation import parse

MOST_VIDEOS = 1_000_000
MOST_PROMPTS = 10_000  # so many captions are drawn in a minute
SUITES = {"wan-tiny": ("count", "seed"), PACKAGE: ("count", "dimensions")}  # and their options
SOURCES = ("file", "texts", "suite")
TABLES = ("prompts", "variants", "calibration")  # read one by one
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,39}")
CURE = "see `galaxydit eval run --example`"


@dataclass(frozen=True)
class PromptKeys:
    """Where prompts come from: one of file, texts and suite; `count` takes the first ones."""

    file: Text | None = None
    texts: Texts | None = None
    suite: Literal[tuple(SUITES)] | None = None  # type: ignore[valid-type]
    count: Annotated[int, Interval(ge=1, le=MOST_PROMPTS)] | None = None
    seed: Seed | None = None
    dimensions: Texts | None = None


def read_job(path: Path) -> Job:
    """The job that a file describes. Paths in it are relative to its folder.

    Raises FileNotFoundError if a file is missing, and GalaxyDiTError naming file, key, value and what is expected.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file: check the spelling; {CURE}")
    with named(f"{path} is not TOML: ", f"; {CURE}"):
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    with named(f"{path}: "):
        return _job_of(data, path.parent)


@contextmanager
def named(place: str, cure: str = "") -> Iterator[None]:
    """Put the place in front of errors, and the cure behind them."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{place}{error}{cure}") from error


def _job_of(data: dict[str, Any], folder: Path) -> Job:
    job: Job = parse(Job, data | {name: [] for name in TABLES if name in data}, "", CURE)
    if "seeds" in data and ("samples" in data or "seed" in data):
        raise GalaxyDiTError("seeds is given together with samples or seed; leave one of them out")
    for side in ("height", "width"):
        if (getattr(job, side) or 0) % 2 and job.video != "lossless":
            raise refusal(side, data[side], "an even number", 'take one, or video = "lossless"')
    if job.metrics is not None:
        from galaxydit.eval.metrics import select

        select(job.metrics)
    tables = parse(dict[str, dict[str, Any]], data.get("variants", {}), "variants", CURE)
    variants = (Variant(BASELINE, BASELINE), *(_variant(name, options, folder) for name, options in tables.items()))
    local = folder / job.model / "model_index.json"
    model = str(local.parent.resolve()) if local.is_file() else job.model
    prompts = _prompts("prompts", data["prompts"], folder)
    calibration = _prompts("calibration", data["calibration"], folder) if "calibration" in data else ()
    job = replace(job, model=model, prompts=prompts, variants=variants, calibration=calibration)
    for variant in variants:
        if variant.method == FEWER_STEPS and job.steps is not None and variant.options["steps"] > job.steps:
            expected = f"at most the baseline's steps={job.steps}"
            raise refusal(f"variants.{variant.name}.steps", variant.options["steps"], expected, "lower it")
    needing = [variant.name for variant in variants if needs_calibration(variant.method)]
    if needing and not job.calibration:
        raise GalaxyDiTError(
            f"calibration is missing: variants.{needing[0]} measures something beforehand, on prompts that are not in "
            "the job; add a table like prompts"
        )
    if job.calibration and not needing:
        raise GalaxyDiTError("calibration has no effect, since no variant measures anything; leave it out")
    if shared := sorted(set(job.calibration) & set(job.prompts)):
        raise GalaxyDiTError(f"calibration has {shared[0]!r}, which is also in prompts; take others")
    if (videos := len(job.prompts) * len(job.variants) * len(job.seeds or range(job.samples))) > MOST_VIDEOS:
        raise refusal("videos", videos, f"at most {MOST_VIDEOS}", "take fewer samples, or several jobs")
    local_folder(job.model)
    return job


def _prompts(table: str, data: dict[str, Any], folder: Path) -> tuple[str, ...]:
    keys: PromptKeys = parse(PromptKeys, data, table, CURE)
    sources = [name for name in SOURCES if name in data]
    if len(sources) != 1:
        given = " and ".join(sources) or "none of them"
        raise GalaxyDiTError(f"{table} has {given}: expected one of {', '.join(SOURCES)}; {CURE}")
    for name in data:
        if name not in (*SOURCES, *SUITES.get(keys.suite or "", ("count",))):
            of = f'suite = "{keys.suite}"' if keys.suite else sources[0]
            raise GalaxyDiTError(f"{table}.{name}={data[name]!r} has no effect with {of}; leave it out")
    if keys.suite is None:
        found = keys.texts or _read_prompts(folder / data["file"], f"{table}.file")
        if keys.count is not None and keys.count > len(found):
            raise refusal(f"{table}.count", keys.count, f"at most {len(found)}, the number of prompts", "lower it")
        return tuple(found[: keys.count])
    if keys.suite == PACKAGE:
        with named(f"{table}."):
            return vbench_prompts(keys.count, keys.dimensions)
    if keys.count is None:
        raise GalaxyDiTError(f"{table}.count is missing: expected a whole number from 1 to {MOST_PROMPTS}")
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    return tuple(draw_prompts(keys.count, keys.seed or 0))


def _read_prompts(path: Path, place: str) -> tuple[str, ...]:
    """The lines of a text file that are not blank."""
    if not path.is_file():
        raise FileNotFoundError(f"{place}={str(path)!r} is no file; check the spelling")
    with named(f"{place}={str(path)!r} is not UTF-8; convert it: "):
        lines = read_lines(path)
    return parse(Texts, lines, place, "write different ones, one a line")


def _variant(name: str, data: dict[str, Any], folder: Path) -> Variant:
    place = f"variants.{name}"
    if name == BASELINE:
        raise GalaxyDiTError(f"{place} is always there; leave it out")
    if not VARIANT_NAME.fullmatch(name):
        raise GalaxyDiTError(
            f'variants."{name}" is the name of files: expected up to 40 small letters, digits and "._+-", a letter or '
            "digit first; put the method's name into method"
        )
    options, files = dict(data), {}
    method = options.pop("method", name)
    if method not in (known := [slug_of(listed) for listed in METHOD_SOURCES]):
        what = f"method={method!r}" if "method" in data else f"method is missing, and {name!r}"
        raise GalaxyDiTError(f"{place}.{what} is no method; {CURE}{did_you_mean(method, known)}")
    read = asdict(parse(options_of(method), options, place, CURE))
    options = {key: read[key] for key in options}  # 2 for 2.0 is the same setting
    if "threshold" in options and ("speedup" in options or "max_error" in options):
        raise GalaxyDiTError(f"{place}.threshold is given together with speedup or max_error; leave one of them out")
    if "profile" in options:
        if (profile := folder / options["profile"]).is_file():
            options["profile"] = str(profile.resolve())
            files["profile"] = hashlib.sha256(profile.read_bytes()).hexdigest()
        from galaxydit.profiles.registry import load_profile

        with named(f"{place}."):
            load_profile(options["profile"])
    return Variant(name, method, options, files)
