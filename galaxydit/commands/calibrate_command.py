"""`galaxydit calibrate`: measure the profile of a model, a JSON file of measurements and of the steps to compute."""

from pathlib import Path
from typing import Annotated

import typer

from galaxydit.calibration.budget import FULL, forecast, read_budget
from galaxydit.calibration.prompt_files import PROMPTS, split_prompts
from galaxydit.commands import options
from galaxydit.commands.argument_checks import check_output_file, check_output_folder
from galaxydit.commands.captions import WITH_CAPTIONS, calibration_prompts
from galaxydit.commands.console import messages, resumable, say, show, show_json
from galaxydit.errors import refusal
from galaxydit.pipelines.own_files import check_replaceable, own_html, own_picture, own_profile, own_video

KEPT_VIDEOS = "seed-*.mp4"  # in --save-videos
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
    for written_to, option in ((report, "--report"), (save_videos, "--save-videos"), (folder, "--resume-dir")):
        if written_to is not None:
            check_output_folder(written_to, option)
    check_replaceable(out, "--out", own_profile, force=force)
    if save_videos is not None:
        for video in save_videos.glob(KEPT_VIDEOS):
            check_replaceable(video, "--save-videos", own_video, force=force)
    spent = read_budget(budget)
    own = PROMPTS if prompts is None and source.model != WITH_CAPTIONS else prompts
    texts = inputs.added_to(calibration_prompts(own, source.model, "--prompts"))
    split_prompts(texts, sizes.steps, verifies=spent == FULL)
    say(f"loading {source.model}")
    from galaxydit.calibration.calibration import KIND
    from galaxydit.calibration.calibration import calibrate as run_calibration
    from galaxydit.calibration.profile_file import keep, stored
    from galaxydit.calibration.profile_tables import card_of, terminal_tables
    from galaxydit.pipelines.runs import LiveProgress, Store, open_own

    if report is not None:
        from galaxydit.calibration.html_report import PAGE_NAME, write_report
        from galaxydit.calibration.plots import FIGURES

        check_replaceable(report / PAGE_NAME, "--report", own_html, force=force)
        for name in FIGURES:
            check_replaceable(report / f"{name}.png", "--report", own_picture, force=force)
    if resume_dir is None and any((folder / name).exists() for name in ("run.json", "units")):
        open_own(folder, KIND, {})  # of an earlier calibration
    else:
        Store(folder).create(KIND, {})
    pipe, load = cluster.load(source)
    before, mismatch = stored(out, pipe)
    if mismatch is not None and not force:
        expected = f"a new file or a profile of this model ({mismatch.text})"
        raise refusal("--out", str(out), expected, "pass another --out, or --force to replace the file")
    if before is not None and mismatch is None:
        say(f"{out} holds a profile of {before.basis}; only one of as many prompts and recordings replaces it")
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
    written: list[Path | str] = []
    if saved[-1]:
        written.append(out)
    else:
        cure = f"pass another --out and --resume-dir {folder} to write this one"
        say(f"{out} stays, because it is better than this profile, {calibration.profile.basis}; {cure}", "yellow")
    if report is not None:
        written.append(write_report(calibration, report, source.model))
    if push is not None:
        from galaxydit.profiles.hub import push_to_hub

        written.append(push_to_hub(calibration.profile, push, card_of(calibration.profile, source.model, push)))
    if as_json:
        show_json({"profile": calibration.profile.to_dict()})
        return
    profile = calibration.profile
    if (seconds := profile.evidence.seconds) and seconds.disturbance:
        say(f"other work disturbed the verification, so do not trust its seconds: {seconds.disturbance}", "yellow")
    show(f"rests on {profile.basis}", profile.evidence.reason, calibration.chosen_order)
    show(*terminal_tables(profile), *written)
