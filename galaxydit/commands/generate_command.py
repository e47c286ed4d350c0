"""`galaxydit generate`: videos of any text-to-video pipeline."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from galaxydit.commands import options
from galaxydit.commands.argument_checks import check_output_file, check_record
from galaxydit.commands.captions import KNOWN_WORDS, calibration_prompts, warn_of_unknown_words
from galaxydit.commands.conclusion import NextCommand, conclude, model_arguments, size_arguments
from galaxydit.commands.console import narrating, say, show, show_json, step_bar
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.jobs import JobOptions, job_keys, make_videos, refuse_json_of_plan, show_plan
from galaxydit.errors import refusal
from galaxydit.eval.counted import counted
from galaxydit.pipelines.own_files import check_replaceable, own_csv, own_json, own_video
from galaxydit.pipelines.written_by import RECORDING
from galaxydit.request import AUTO

if TYPE_CHECKING:
    from galaxydit.pipelines.generate import GeneratedVideo


@dataclass(frozen=True)
class FileSizes(options.Sizes):
    """Options of a generation (`options.Sizes`: steps, guidance scale, flow shift, shape) and of the frame rate."""

    fps: Annotated[float | None, typer.Option(help="Frames per second of the file, and of --video.")] = None


def generate(
    *,
    plugins: options.PluginOptions,
    source: options.ModelOptions,
    prompt: Annotated[
        str | None,
        typer.Option(
            help=f"What the video shows, or JSON that also names images and videos. wan-tiny knows {KNOWN_WORDS}."
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A file with a prompt on each line: a video of each, into the folder --out.")
    ] = None,
    out: Annotated[str, typer.Option(help="The mp4 file to write; with --prompts a folder, or s3://bucket/folder.")],
    seed: Annotated[
        int, typer.Option(min=0, max=options.LARGEST_SEED, help="Draws the initial noise; of a file, SEED + line.")
    ] = 0,
    inputs: options.InputFiles,
    sizes: FileSizes,
    request: options.RequestOptions,
    accelerate: Annotated[bool, typer.Option("--accelerate/--no-accelerate", help="Use galaxydit.")] = True,
    record: options.Record = None,
    lossless: Annotated[bool, typer.Option("--lossless", help="Exact RGB; not every player shows it.")] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
    making: JobOptions,
) -> None:
    """Generate one video, or a video of each prompt in a file. Options that are left out have the values that the
    authors of the model recommend. With --prompts the same command resumes and makes failed videos again, and new lines
    in the file add videos.
    """
    given = _given_request(request, accelerate=accelerate)
    check_record(record, making.ray)
    if record is not None and accelerate:
        raise typer.BadParameter("needs all steps: add --no-accelerate", param_hint="--record")
    if prompts is not None and prompt is None:
        if out.endswith(".mp4"):
            raise typer.BadParameter(f"{out!r} is a file: --prompts writes a folder", param_hint="--out")
        data = job_keys(source, sizes)
        data |= {"seed": seed, "video": "lossless" if lossless else "h264", "prompts": {"file": str(prompts)}}
        if any(vars(inputs).values()):
            texts = inputs.added_to(calibration_prompts(prompts, source.model, "--prompts"))
            data["prompts"] = {"texts": list(texts)}
        if accelerate:
            data |= {"baseline": False, "variants": {"galaxydit": given}}
        _generate_many(data, out, making, record, force=force, as_json=as_json)
        return
    if prompt is None or prompts is not None:
        raise typer.BadParameter("expected either --prompt or --prompts", param_hint="--prompt")
    _refuse_job_options(making)
    (prompt,) = inputs.added_to([prompt])
    _check_video_files(out, record, force=force)
    say("loading torch and diffusers")
    import galaxydit
    from galaxydit.calibration.generation_observer import observed
    from galaxydit.pipelines.generate import generate as generate_video
    from galaxydit.pipelines.prompt_length import warn_of_long_prompts
    from galaxydit.pipelines.video import save_video

    with narrating() as tell:
        tell(f"loading {source.model}")
        pipe = source.load()
    warn_of_unknown_words(source.model, [prompt])
    warn_of_long_prompts(pipe, [prompt])
    settings = sizes.settings_for(pipe)
    with ExitStack() as stack:
        handle = stack.enter_context(galaxydit.accelerate(pipe, **vars(request))) if accelerate else None
        observer = None if record is None else stack.enter_context(observed(pipe))
        with step_bar() as on_step:
            generation = generate_video(pipe, prompt, settings, seed, on_step=on_step)
    if record is not None and observer is not None:
        observer.save(record, settings, prompt, seed)
    save_video(generation.frames, out, settings.fps, lossless=lossless, sound=generation.sound)
    reports = [] if handle is None else handle.reports  # empty if no loop was declared; a warning says so
    report = reports[-1] if reports else None
    if as_json:
        report_data = None if report is None else report.to_dict()
        show_json({"video": out, "seconds": seconds_of(generation), "report": report_data})
        return
    if report is not None:
        show(str(report), "")
    elif record is None:
        show(f"denoising {generation.denoise_seconds:.2f} s, end to end {generation.end_to_end_seconds:.2f} s", "")
    written = [out] if record is None else [out, record]
    conclude(written, *_meaning_and_following(source, sizes, prompt, record, accelerated=report is not None))


def _given_request(request: options.RequestOptions, *, accelerate: bool) -> dict[str, Any]:
    """The options of `accelerate` that the user gave, by name; raises BadParameter for any beside --no-accelerate."""
    given = {name: value for name, value in vars(request).items() if value not in (None, AUTO)}
    if given and not accelerate:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise typer.BadParameter("has no effect with --no-accelerate: leave one of the two out", param_hint=option)
    return given


def _refuse_job_options(making: JobOptions) -> None:
    job_options = {
        "--ray": making.ray,
        "--processes": making.processes,
        "--dry-run": making.dry_run,
        "--allow-mixed-versions": making.allow_mixed_versions,
    }
    for option, value in job_options.items():
        if value:
            raise typer.BadParameter("has no effect on one video: pass --prompts, or leave it out", param_hint=option)


def _check_video_files(out: str, record: Path | None, *, force: bool) -> None:
    """Refuse, before anything is loaded, a video or a recording that cannot be written."""
    if "://" in out:
        raise refusal("--out", out, "a local file for one video", "pass --prompts FILE, which also writes to addresses")
    check_output_file(Path(out), ".mp4")
    check_replaceable(Path(out), "--out", own_video, force=force)
    if record is not None:
        check_replaceable(record, "--record", own_json(RECORDING), force=force)


def _meaning_and_following(
    source: options.ModelOptions, sizes: FileSizes, prompt: str, record: Path | None, *, accelerated: bool
) -> tuple[str, NextCommand]:
    """What the video is, in one sentence, and what to do next; `accelerated`: galaxydit has a report of it."""
    model, size = model_arguments(source), size_arguments(sizes)
    again = [*model, "--prompt", prompt, *size]
    if record is not None:
        text = f"{record} holds the model's outputs of each step of this plain video."
        use = ["calibrate", *model, "--out", "profile.json", "--recorded", record, *size]
        return text, NextCommand("calibrate with it", use)
    if accelerated:
        text = "The plain video of the same seed is what it is compared with: PSNR is measured against that."
        return text, NextCommand("see both side by side, with their differences", ["demo", *again])
    text = "This is the video as the pipeline makes it, without the plugin."
    return text, NextCommand("make it with half of the compute", ["generate", *again, "--out", "fast.mp4"])


def seconds_of(generation: "GeneratedVideo") -> dict[str, float | None]:
    return {"denoise": generation.denoise_seconds, "end_to_end": generation.end_to_end_seconds}


def _generate_many(
    data: dict[str, Any], out: str, making: JobOptions, record: Path | None, *, force: bool, as_json: bool
) -> None:
    """Make a video of each prompt of the job `data` in `out`, print a summary, and exit with 1 if one failed."""
    refuse_json_of_plan(making, as_json=as_json)
    from galaxydit.eval.jobs.jobfile import job_of

    job = job_of(data, Path())
    if making.dry_run:
        show_plan(job, out, making, retry_failed=True)
        return
    say(f"{counted(len(job.prompts), 'prompt')}: starting")
    from galaxydit.eval.report.export import COLUMNS, write_csv
    from galaxydit.pipelines.runs import Store

    store = Store(out)
    if store.is_local:
        check_replaceable(Path(store.root, "results.csv"), "--out", own_csv(COLUMNS), force=force)
    warn_of_unknown_words(job.model, job.prompts)
    make_videos(job, out, making, record=record, retry_failed=True)
    from galaxydit.eval.report.read_run import read_run

    run, asked = read_run(out), set(job.prompts)
    records = [record for record in run.records if record.prompt in asked]
    failed = [record for record in records if not record.is_done]
    table = None if run.root is None else write_csv(run, run.root / "results.csv")
    counts = {"done": len(records) - len(failed), "failed": len(failed)}
    if as_json:
        videos = [{"prompt": each.prompt, "seed": each.seed, "video": each.video} for each in records if each.is_done]
        show_json(counts | {"folder": out, "videos": videos})
    else:
        text = f"{counted(counts['done'], 'video')} in {out}/files, {counts['failed']} failed."
        if table is not None:
            text += f" {table.name} lists them with their seconds."
        what = "report" if run.root is not None else "export"
        conclude([] if table is None else [table], text, NextCommand("see them", ["eval", what, out]))
    if failed:
        say(f"{failed[0].unit}: {failed[0].reason}; the same command makes failed videos again", "yellow")
        raise typer.Exit(ExitCode.FAILED)
