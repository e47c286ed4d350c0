"""`galaxydit calibrate`: measure the profile of a model, a JSON file of measurements and of the steps to compute."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.calibration.budget import FULL, forecast, read_budget
from galaxydit.calibration.prompt_files import PROMPTS, split_prompts
from galaxydit.commands import options
from galaxydit.commands.argument_checks import check_output_file, check_output_folder
from galaxydit.commands.captions import WITH_CAPTIONS, calibration_prompts
from galaxydit.commands.conclusion import NextCommand, conclude, model_arguments, size_arguments
from galaxydit.commands.console import messages, narrating, resumable, say, show, show_json
from galaxydit.errors import refusal
from galaxydit.pipelines.model_names import example_prompt
from galaxydit.pipelines.own_files import check_replaceable, own_html, own_picture, own_profile, own_video

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.profiles.schema import Profile

KEPT_VIDEOS = "seed-*.mp4"  # in --save-videos
EXAMPLE_SPEEDUP = 2.0
LARGEST_SEED = 2**63  # leaves room for the seeds of all samples, which are counted from this one


def calibrate(
    *,
    plugins: options.PluginOptions,
    source: options.ModelOptions,
    out: Annotated[Path, typer.Option(help="The profile to write, a JSON file.")],
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="A file, one prompt a line, the last 8 (or half) held out; by default prompts of the plugin."
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="What it may cost: plain videos (4), hours (2h), or full, which also verifies by videos; by default "
            f"recordings until the schedules stop moving, and one plain video: {forecast()}.",
            show_default=False,
        ),
    ] = "",
    full_size: Annotated[bool, typer.Option("--full-size", help="Record at the size of the videos.")] = False,
    recorded: Annotated[
        Path | None,
        typer.Option(help="A file of `generate --record` or `eval run --record`, in place of the plain video."),
    ] = None,
    save_videos: Annotated[
        Path | None, typer.Option(help="Folder for the videos of full size that are made, plain and accelerated.")
    ] = None,
    inputs: options.InputFiles,
    sizes: options.Sizes,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Sample i starts from the noise of seed + i.")] = 0,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Also draw how similar each block's outputs are to the step before.")
    ] = False,
    push: Annotated[
        str | None,
        typer.Option(help="Also upload the profile and its card to this repository (owner/name) of the Hub."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for report.html and its figures.")] = None,
    resume_dir: Annotated[Path | None, typer.Option(help="Folder of finished parts; by default beside --out.")] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    cluster: options.RayOptions,
) -> None:
    """Measure a profile for `accelerate` from small recordings. --out holds a profile after the first of them, and a
    lesser one never replaces it; the same command continues an interrupted calibration, or one with a larger --budget.
    """
    check_output_file(out, ".json")
    folder = resume_dir or out.with_suffix(".parts")
    _check_outputs(out, report, save_videos, folder, force=force)
    spent = read_budget(budget)
    own = PROMPTS if prompts is None and source.model != WITH_CAPTIONS else prompts
    texts = inputs.added_to(calibration_prompts(own, source.model, "--prompts"))
    split_prompts(texts, sizes.steps, verifies=spent == FULL)
    say("loading torch and diffusers")
    from galaxydit.calibration.calibration import KIND
    from galaxydit.calibration.calibration import calibrate as run_calibration
    from galaxydit.calibration.profile_file import keep
    from galaxydit.calibration.profile_tables import card_of, terminal_tables
    from galaxydit.pipelines.runs import LiveProgress, Store, open_own

    if report is not None:
        _check_report(report, force=force)
    if resume_dir is None and any((folder / name).exists() for name in ("run.json", "units")):
        open_own(folder, KIND, {})  # of an earlier calibration
    else:
        Store(folder).create(KIND, {})
    with narrating() as tell:
        tell(f"loading {source.model}")
        pipe, load = cluster.load(source)
    _check_stored(out, pipe, force=force)
    saved: list[bool] = []
    progress = LiveProgress(messages())
    with resumable(progress.how_far), progress, cluster.executor() as executor:
        calibration = run_calibration(
            pipe,
            texts,
            resume_dir=folder,
            budget=spent,
            settings=sizes.settings_for(pipe),
            seed=seed,
            name=out.stem,
            full_size=full_size,
            recorded=recorded,
            save_videos=save_videos,
            analyze=analyze,
            on_profile=lambda profile: saved.append(keep(profile, out, pipe)),
            say=say,
            progress=progress,
            executor=executor,
            load=load,
        )
    profile = calibration.profile
    written: list[Path | str] = []
    if saved[-1]:
        written.append(out)
    else:
        cure = f"pass another --out and --resume-dir {folder} to write this one"
        say(f"{out} stays, because it is better than this profile, {profile.basis}; {cure}", "yellow")
    if report is not None:
        from galaxydit.calibration.html_report import write_report

        written.append(write_report(calibration, report, source.model))
    if push is not None:
        from galaxydit.profiles.hub import push_to_hub

        written.append(push_to_hub(profile, push, card_of(profile, source.model, push)))
    if as_json:
        show_json({"profile": profile.to_dict()})
        return
    if (seconds := profile.evidence.seconds) and seconds.disturbance:
        say(f"other work disturbed the verification, so do not trust its seconds: {seconds.disturbance}", "yellow")
    show(*terminal_tables(profile), f"The profile rests on {profile.basis}.")
    show(f"Proxy: {profile.evidence.reason}.", f"Prediction: {calibration.chosen_order}.", "")
    conclude(written, meaning_of(profile, out), *_following(profile, out, source, sizes, prompts))


def _check_outputs(out: Path, report: Path | None, save_videos: Path | None, folder: Path, *, force: bool) -> None:
    """Refuse files and folders that cannot be written, and files of others; `folder` is that of finished parts."""
    for written_to, option in ((report, "--report"), (save_videos, "--save-videos"), (folder, "--resume-dir")):
        if written_to is not None:
            check_output_folder(written_to, option)
    check_replaceable(out, "--out", own_profile, force=force)
    if save_videos is not None:
        for video in save_videos.glob(KEPT_VIDEOS):
            check_replaceable(video, "--save-videos", own_video, force=force)


def _check_report(report: Path, *, force: bool) -> None:
    """Refuse to replace a page or figures that galaxydit did not write."""
    from galaxydit.calibration.html_report import PAGE_NAME
    from galaxydit.calibration.plots import FIGURES

    check_replaceable(report / PAGE_NAME, "--report", own_html, force=force)
    for name in FIGURES:
        check_replaceable(report / f"{name}.png", "--report", own_picture, force=force)


def _check_stored(out: Path, pipe: "DiffusionPipeline", *, force: bool) -> None:
    """Unless `force`, refuse a profile of another model in `out`; say what replaces one of this model."""
    from galaxydit.calibration.profile_file import stored

    before, mismatch = stored(out, pipe)
    if mismatch is not None and not force:
        expected = f"a new file or a profile of this model ({mismatch.text})"
        raise refusal("--out", str(out), expected, "pass another --out, or --force to replace the file")
    if before is not None and mismatch is None:
        say(f"{out} holds a profile of {before.basis}; only one of as many prompts and recordings replaces it")


def meaning_of(profile: "Profile", out: Path) -> str:
    """What a profile is good for, in one sentence."""
    speedups = [row.speedup for row in profile.evidence.verifications or profile.recipe.targets]
    planned = f"{out} plans which steps to compute at speedups from {speedups[0]:g}x to {speedups[-1]:g}x"
    measured = [row for row in profile.evidence.verifications if row.psnr_db is not None]
    if not measured:
        return f"{planned}; no video has verified it, so its PSNR is unknown."
    row = min(measured, key=lambda each: abs(each.speedup - EXAMPLE_SPEEDUP))
    return f"{planned}; at {row.speedup:g}x videos have {row.psnr_db:.1f} dB PSNR against the plain ones."


def _following(
    profile: "Profile", out: Path, source: options.ModelOptions, sizes: options.Sizes, prompts: Path | None
) -> Iterator[NextCommand]:
    model, size = model_arguments(source), size_arguments(sizes)
    use = ["generate", *model, "--profile", out, "--speedup", f"{EXAMPLE_SPEEDUP:g}"]
    use += ["--prompt", example_prompt(source.model), "--out", "video.mp4", *size]
    yield NextCommand("make a video with it", use)
    if not profile.evidence.verified_prompts:
        own = [] if prompts is None else ["--prompts", prompts]
        verify = ["calibrate", *model, "--out", out, *own, "--budget", "full", *size]
        yield NextCommand("measure its PSNR by videos, from where this calibration ended", verify)
