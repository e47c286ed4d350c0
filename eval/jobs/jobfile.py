"""From a TOML file to a job, checked wholly before anything runs."""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, Len
from pydantic import AfterValidator, StringConstraints

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.methods import OWN, method_names, needs_calibration, options_of
from galaxydit.eval.jobs.record import BASELINE, VARIANT_NAME
from galaxydit.eval.jobs.suites import MOST_PROMPTS, SUITES, WAN_TINY, suite_prompts
from galaxydit.validation import parse

MOST_VIDEOS = 1_000_000
SOURCES = ("file", "texts", "suite")
SUITED = {WAN_TINY: ("count", "seed"), "vbench": ("count", "dimensions")}
SETTINGS = {"guidance": "guidance_scale", "guidance_2": "guidance_scale_2", "frames": "num_frames"}
CURE = "`galaxydit eval run --example` shows a job file"


def _check_distinct(values: list[Any]) -> list[Any]:
    if len({json.dumps(value) for value in values}) < len(values):
        raise GalaxyDiTError("expected a list without repetition; ")
    return values


Text = Annotated[str, StringConstraints(pattern=r"\S")]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Interval(ge=0, le=2**63 - 1)]
Texts = Annotated[list[Text], Len(1), AfterValidator(_check_distinct)]
Seeds = Annotated[list[Seed], Len(1), AfterValidator(_check_distinct)]


@dataclass(frozen=True)
class SettingKeys:
    """Settings that a job gives; those left out are as recommended for the model."""

    steps: Count | None = None
    guidance: Annotated[float, Ge(0)] | None = None
    guidance_2: Annotated[float, Ge(0)] | None = None
    flow_shift: Annotated[float, Gt(0)] | None = None
    negative_prompt: str | None = None
    height: Count | None = None
    width: Count | None = None
    frames: Count | None = None
    fps: Annotated[float, Gt(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class JobKeys(SettingKeys):
    """The keys of a job file."""

    model: Text
    revision: Text | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    seeds: Seeds | None = None
    samples: Count | None = None
    seed: Seed | None = None
    metrics: Texts | None = None
    video: Literal["h264", "lossless"] | None = None
    prompts: dict[str, Any]
    calibration: dict[str, Any] | None = None
    variants: dict[str, dict[str, Any]] | None = None


@dataclass(frozen=True)
class PromptKeys:
    """Where prompts come from: one of file, texts and suite."""

    file: Text | None = None
    texts: Texts | None = None
    suite: Literal[SUITES] | None = None  # type: ignore[valid-type]
    count: Annotated[int, Interval(ge=1, le=MOST_PROMPTS)] | None = None
    seed: Seed | None = None
    dimensions: Texts | None = None


def read_job(path: Path) -> Job:
    """The job that a file describes. Paths in it are relative to its folder.

    Raises FileNotFoundError if a file is missing, and GalaxyDiTError naming file, key, value and what is expected.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file: check the spelling; {CURE}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of TOML and of UTF-8
        raise GalaxyDiTError(f"{path} is not TOML: {error}") from error
    place = f"{path}: "
    _check(JobKeys, data, place)
    if "seeds" in data and ("samples" in data or "seed" in data):
        raise GalaxyDiTError(f"{place}seeds is given together with samples or seed; leave one of them out")
    lossless = data.get("video") == "lossless"
    for side in ("height", "width"):
        if data.get(side, 0) % 2 and not lossless:
            raise refusal(f"{place}{side}", data[side], "an even number", 'take one, or video = "lossless"')
    variants = tuple(_variant(path, name, options) for name, options in data.get("variants", {}).items())
    suite, prompts = _prompts(path, "prompts", data["prompts"])
    job = Job(
        model=str((path.parent / data["model"]).resolve()) if (path.parent / data["model"]).is_dir() else data["model"],
        revision=data.get("revision"),
        dtype=data.get("dtype"),
        settings={SETTINGS.get(key.name, key.name): data[key.name] for key in fields(SettingKeys) if key.name in data},
        prompts=prompts,
        suite=suite,
        seeds=tuple(data["seeds"]) if "seeds" in data else None,
        samples=data.get("samples", 1),
        seed=data.get("seed", 0),
        variants=(Variant(BASELINE, BASELINE), *variants),
        metrics=_metrics(place, data.get("metrics")),
        lossless=lossless,
        calibration=_calibration(path, data, variants, prompts),
    )
    videos = len(prompts) * len(job.variants) * (len(job.seeds) if job.seeds is not None else job.samples)
    if videos > MOST_VIDEOS:
        raise refusal(f"{place}videos", videos, f"at most {MOST_VIDEOS}", "take fewer samples, or several jobs")
    return job


def _check(kind: type, data: dict[str, Any], place: str) -> None:
    """Raise GalaxyDiTError, with `place` in front, unless all keys of a table are known and their values allowed."""
    known = [key.name for key in fields(kind)]
    for name in data:
        if name not in known:
            raise GalaxyDiTError(f"{place}{name} is not known{_suggestion(name, known)}; {CURE}")
    try:
        parse(kind, data, "", CURE)
    except GalaxyDiTError as error:
        raise GalaxyDiTError(place + str(error).removeprefix(".")) from error


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]}?" if close else f": expected one of {', '.join(known)}"


def _prompts(path: Path, table: str, data: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Where the prompts come from, if they have a name, and the prompts."""
    place = f"{path}: {table}."
    _check(PromptKeys, data, place)
    sources = [name for name in SOURCES if name in data]
    if len(sources) != 1:
        given = " and ".join(sources) or "none of them"
        raise GalaxyDiTError(f"{path}: {table} has {given}: expected one of {', '.join(SOURCES)}; {CURE}")
    source, rest = sources[0], {name: value for name, value in data.items() if name not in SOURCES}
    for name in rest:
        if source != "suite" or name not in SUITED[data["suite"]]:
            of = f'suite = "{data["suite"]}"' if source == "suite" else source
            raise GalaxyDiTError(f"{place}{name}={rest[name]!r} has no effect with {of}; leave it out")
    if source == "texts":
        return {}, tuple(data["texts"])
    if source == "file":
        return {}, _read_prompts(path.parent / data["file"], place)
    try:
        return dict(data), suite_prompts(data["suite"], **rest)
    except GalaxyDiTError as error:
        raise GalaxyDiTError(f"{place}{error}") from error


def _read_prompts(path: Path, place: str) -> tuple[str, ...]:
    """The lines of a text file that are not blank."""
    if not path.is_file():
        raise FileNotFoundError(f"{place}file={str(path)!r} is no file; check the spelling")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise GalaxyDiTError(f"{place}file={str(path)!r} is not UTF-8 ({error}); convert it") from error
    found: dict[str, int] = {}
    for index, line in enumerate(lines, start=1):
        prompt = line.strip()
        if prompt in found:
            raise GalaxyDiTError(f"{path}: line {index} repeats line {found[prompt]}; for more videos set samples")
        if prompt:
            found[prompt] = index
    if not found:
        raise GalaxyDiTError(f"{place}file={str(path)!r} holds no prompt; write one a line")
    return tuple(found)


def _variant(path: Path, name: str, data: dict[str, Any]) -> Variant:
    place = f"{path}: variants.{name}"
    if name == BASELINE:
        raise GalaxyDiTError(f"{place} is always there; leave it out")
    if not VARIANT_NAME.fullmatch(name):
        raise GalaxyDiTError(
            f"{path}: variants.{json.dumps(name)} is the name of files: expected up to 40 small letters, digits and "
            '"._+-", a letter or digit first; put the method\'s name into method'
        )
    options = dict(data)
    method = options.pop("method", name)
    if method not in OWN and method not in (known := method_names()):
        what = f"method={method!r}" if "method" in data else f"method is missing, and {name!r}"
        raise GalaxyDiTError(f"{place}.{what} is no method{_suggestion(str(method), known)}; {CURE}")
    _check(options_of(method), options, f"{place}.")
    if "threshold" in options and ("speedup" in options or "max_error" in options):
        raise GalaxyDiTError(f"{place}.threshold is given together with speedup or max_error; leave one of them out")
    files = {}
    if "profile" in options:
        if (profile := path.parent / options["profile"]).is_file():
            options["profile"] = str(profile.resolve())
            files["profile"] = hashlib.sha256(profile.read_bytes()).hexdigest()
        from galaxydit.profiles.registry import load_profile

        try:
            load_profile(options["profile"])
        except GalaxyDiTError as error:
            raise GalaxyDiTError(f"{place}.{error}") from error
    return Variant(name, method, options, files)


def _metrics(place: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    from galaxydit.eval.metrics import select

    try:
        return tuple(metric.name for metric in select(names))
    except ValueError as error:
        raise GalaxyDiTError(f"{place}{error}") from error


def _calibration(
    path: Path, data: dict[str, Any], variants: Sequence[Variant], prompts: Sequence[str]
) -> tuple[str, ...]:
    """Prompts for the methods that measure something beforehand."""
    needing = [variant.name for variant in variants if needs_calibration(variant.method)]
    if "calibration" not in data:
        if needing:
            raise GalaxyDiTError(
                f"{path}: calibration is missing: variants.{needing[0]} measures something beforehand, on prompts that "
                "are not in the job; add a table like prompts"
            )
        return ()
    if not needing:
        raise GalaxyDiTError(f"{path}: calibration has no effect, since no variant measures anything; leave it out")
    _, texts = _prompts(path, "calibration", data["calibration"])
    shared = sorted(set(texts) & set(prompts))
    if shared:
        raise GalaxyDiTError(f"{path}: calibration has {shared[0]!r}, which is also in prompts; take others")
    return texts
