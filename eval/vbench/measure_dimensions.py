"""Measures the videos of a run with a benchmark: choose videos, check weights, measure shares, combine their scores.

runs/x/vbench/ holds results.json (results.py) and shares/, a store of `pipelines.runs`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from galaxydit.errors import GalaxyDiTError, check_count, refusal
from galaxydit.eval.jobs.job import MOST_VIDEOS
from galaxydit.eval.jobs.record import BASELINE, video_record
from galaxydit.eval.jobs.run_job import load_run
from galaxydit.eval.published.suite import Dimension, Suite
from galaxydit.eval.published.vbench import RAFT, VBENCH
from galaxydit.eval.vbench.arrange import Arrangement, Plan, Selection, arrange, select_videos
from galaxydit.eval.vbench.environment import Environment, default_cache, read_full_info
from galaxydit.eval.vbench.results import VERSION, DimensionScore, Results, VariantScores, combine
from galaxydit.eval.vbench.score import measure_drop, normalise, total_up
from galaxydit.eval.vbench.share_maker import ShareMaker
from galaxydit.pipelines.runs import Executor, InProcess, Progress, Store, open_own, run

KIND = "vbench"
SHARE = 100  # videos; loading a dimension's models takes as long as a few of them


def evaluate(
    root: str | Path,
    names: Sequence[str],
    environment: Environment,
    cache: Path | None = None,
    *,
    suite: Suite = VBENCH,
    share: int | None = None,
    static_filter: bool | None = None,
    trust: bool = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Results:
    """Measure the dimensions `names` of all variants of a run, and write results.json, which keeps earlier scores.

    Measured shares are kept, failed ones measured again; nothing is downloaded.

    Args:
        cache: the folder of upstream's weights, by default upstream's own.
        share: videos of a share, by default as before, or 100; some dimensions are measured whole.
        static_filter: temporal flickering on static videos alone; by default for the benchmark's own prompts.
        trust: let upstream unpickle its weights, which can run code.

    Raises GalaxyDiTError before anything runs; later failures are in `Results.failed`.
    """
    dimensions = suite.select(names)
    store, job = load_run(root)
    planned = job.units()
    records = []
    for _, record, damage in store.survey([unit.id for unit in planned]):
        if record is not None:
            records.append(video_record(record, damage))
    selection = select_videos(store.root, records, [variant.name for variant in job.variants])
    full_info = read_full_info(environment, suite)
    asked = {}
    for variant, clips in selection.items():
        for dimension in dimensions:
            asked[variant, dimension.name] = arrange(suite, dimension, clips, full_info, static_filter)
    cache = cache or default_cache(suite)
    filters_statics = any(arrangement.static_filter for arrangement in asked.values())
    check_weights(suite, dimensions, cache, filters_statics)
    kept, size = open_shares(store, suite, environment, share)
    plan = Plan(suite, environment.version, full_info, size)
    maker = ShareMaker(store, environment, cache, trust)
    units = []
    for key, arrangement in asked.items():
        units += plan.units(key, arrangement, selection)
    run(units, maker, kept, executor or InProcess(), progress=progress, retry_failed=True)
    scores, failed = collect(plan, kept, selection, asked)
    pairs = {(unit.data["prompt_index"], unit.data["seed"]) for unit in planned}
    # Every variant has equally many videos that count.
    left_out = len(pairs) - len(next(iter(selection.values())))
    results = Results(VERSION, environment.version, job.video == "lossless", left_out, scores, failed, suite.name)
    store.write(f"{suite.name}/results.json", asdict(results))
    return results


def check_weights(suite: Suite, dimensions: Sequence[Dimension], cache: Path, static_filter: bool) -> None:
    """Raise GalaxyDiTError with place and source of each missing model file.

    With `static_filter`, temporal flickering also needs RAFT, an optical flow model.
    """
    missing = []
    for dimension in dimensions:
        filtering = (RAFT,) if static_filter and dimension.filtered else ()
        for weights in (*dimension.weights, *filtering):
            if not (cache / weights.path).exists():
                missing.append(f"{dimension.name} needs {cache / weights.path}, from {weights.url}")
        for model in dimension.hub:
            if not isinstance(try_to_load_from_cache(model, "config.json"), str):
                missing.append(f"{dimension.name} needs {model} in the hub's cache")
    if missing:
        names = ",".join(dimension.name for dimension in dimensions)
        unfiltered = ", pass --no-static-filter for temporal_flickering" if static_filter else ""
        raise GalaxyDiTError(
            f"{suite.title} lacks weights: {'; '.join(missing)}. Run `galaxydit eval vbench fetch --dimensions {names}`"
            f"{unfiltered}, or leave these dimensions out"
        )


def open_shares(store: Store, suite: Suite, environment: Environment, share: int | None) -> tuple[Store, int]:
    """The store of a run's shares, created if needed, and the videos of a share: `share`, or as before, or 100.

    Raises GalaxyDiTError if earlier shares are of another size or benchmark version.
    """
    kept = Store(f"{store.address}/{suite.name}/shares")
    try:
        before = kept.header(KIND)["conditions"]
    except (GalaxyDiTError, OSError):  # none yet, or damaged
        before = {}
    size = share if share is not None else before.get("share", SHARE)
    check_count("share", size, 1, MOST_VIDEOS)
    for name, value in (("share", size), ("version", environment.version)):
        if name in before and before[name] != value:
            cure = f"leave --share out, or remove {kept.root} to measure everything again"
            raise refusal(name, value, f"{before[name]}, that of the shares in {kept.root}", cure)
    conditions = {"suite": suite.name, "version": environment.version, "share": size}
    if kept.is_local:
        opened = open_own(Path(kept.root), KIND, conditions)
    else:
        opened = kept.create(KIND, conditions)
    return opened, size


def collect(
    plan: Plan, kept: Store, selection: Selection, asked: Mapping[tuple[str, str], Arrangement]
) -> tuple[dict[str, VariantScores], dict[str, str]]:
    """`Results.variants` and `Results.failed`, of this call and earlier ones.

    `asked` has this call's arrangements by (variant, dimension); `kept` is the store of shares.
    """
    variants: dict[str, dict[str, DimensionScore]] = {variant: {} for variant in selection}
    failed = {}
    for variant, scores in variants.items():
        for name in plan.suite.dimensions:
            key = (variant, name)
            if key not in asked:
                earlier = _earlier_score(plan, kept, selection, key)
                if earlier is not None:
                    scores[name] = earlier
                continue
            try:
                scores[name] = _score(plan, kept, selection, key, asked[key])
            except GalaxyDiTError as error:
                failed[f"{variant}/{name}"] = str(error)
    _add_drops(plan.suite, selection, variants)
    return {variant: total_up(plan.suite, scores) for variant, scores in variants.items()}, failed


def _earlier_score(plan: Plan, kept: Store, selection: Selection, key: tuple[str, str]) -> DimensionScore | None:
    """The score that an earlier call measured, with the static filter or without it; None if no call has."""
    variant, name = key
    dimension = plan.suite.dimensions[name]
    filters = (True, False) if dimension.filtered else (None,)
    for static_filter in filters:
        with suppress(GalaxyDiTError):
            arrangement = arrange(plan.suite, dimension, selection[variant], plan.full_info, static_filter)
            return _score(plan, kept, selection, key, arrangement)
    return None


def _add_drops(suite: Suite, selection: Selection, variants: Mapping[str, dict[str, DimensionScore]]) -> None:
    """Compare each score with the baseline's, if both count all videos or both count static videos only."""
    pair_of = {}
    for records in selection.values():
        for record in records:
            pair_of[record.unit] = record.pair

    def by_pair(score: DimensionScore) -> dict[tuple[int, int], float]:
        return {pair_of[unit]: value for unit, value in score.videos.items()}

    baseline_scores = variants.get(BASELINE, {})
    for variant, scores in variants.items():
        if variant == BASELINE:
            continue
        for name, score in scores.items():
            baseline = baseline_scores.get(name)
            if baseline is not None and baseline.static == score.static:
                drop = measure_drop(suite.dimensions[name], by_pair(baseline), by_pair(score))
                scores[name] = replace(score, drop=drop)


def _score(
    plan: Plan, kept: Store, selection: Selection, key: tuple[str, str], arrangement: Arrangement
) -> DimensionScore:
    """The score of one (variant, dimension) from its shares, without `drop`.

    Raises GalaxyDiTError if a share is missing or failed, or no video has a score.
    """
    dimension = plan.suite.dimensions[key[1]]
    videos: dict[str, tuple[float, float]] = {}
    score = None
    for unit in plan.units(key, arrangement, selection):
        record = kept.read(unit.id)
        if record is None:
            raise GalaxyDiTError("not measured")
        if not record.is_done:
            raise GalaxyDiTError(record.message or record.reason.partition(": ")[2])
        videos |= record.result["videos"]
        score = record.result["score"]
    # A dimension that is not divisible has one share, whose score counts.
    if dimension.divisible:
        score = combine(dimension, videos.values()) if videos else None
    if score is None:
        reason = "none is static" if arrangement.static_filter else "upstream leaves out all of them"
        raise GalaxyDiTError(f"no video counts: {reason}")
    return DimensionScore(
        score=score,
        points=normalise(dimension, score),
        mode=arrangement.mode,
        complete=arrangement.complete,
        videos={unit: value for unit, (value, _) in videos.items()},
        drop=None,
        static=arrangement.static_filter,
    )
