"""The report of a run: one HTML file, which contains the videos, or links to them if they are too large."""

import base64
import os
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import av
from markupsafe import Markup

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS
from galaxydit.errors import refusal
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report.payload import encode, page_data
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.report.run_brief import brief_of
from galaxydit.files import replacing
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.flac import load_flac
from galaxydit.pipelines.page_design import render_page
from galaxydit.pipelines.video import load_sound, load_video, save_video
from galaxydit.pipelines.written_by import write_html

EMBED_UP_TO = 24 * 2**20  # bytes of videos, a third more in the page
SCRIPTS = (
    "base",
    "sorting",
    "summary",
    "plot",
    "benchmarks",
    "player",
    "listening",
    "filters",
    "pages",
    "prompts",
    "main",
)
MP4_MARK = b"ftyp"  # bytes 4 to 8 of every mp4 file (ISO/IEC 14496-12, 4.3)


def write_page(run: Run, path: Path, embed: bool | None = None) -> Path:
    """Write the report to `path`; by default the page contains videos of up to 24 MiB in total, else links.

    Raises GalaxyDiTError for links from outside the run's folder.
    """
    in_run = run.root is not None and path.parent.resolve() == run.root.resolve()
    sources, elements = {}, []
    with TemporaryDirectory() as temporary:  # for playable copies, if the page is not in the run's folder
        videos = _videos(run, path.parent / "previews" if in_run else Path(temporary))
        if embed is None:
            embed = sum(video.stat().st_size for video in videos.values()) <= EMBED_UP_TO
        if not embed and not in_run:
            raise refusal(
                "out", str(path), f"a file in {run.store.root}, because the page links to videos", "or pass --embed"
            )
        posters = {record.unit: record.thumbnail for record in run.records if record.thumbnail is not None}
        spectrograms = {record.unit: record.spectrogram for record in run.records if record.spectrogram is not None}
        for index, (unit, video) in enumerate(videos.items()):
            if embed:
                sources[unit] = {"embedded": f"video-{index}"}
                content = base64.b64encode(video.read_bytes()).decode("ascii")
                elements.append((f"video-{index}", content))
            else:
                sources[unit] = {"link": quote(os.path.relpath(video, run.store.root))}
                if unit in posters:
                    sources[unit]["poster"] = quote(posters[unit])
            if unit in spectrograms:
                sources[unit]["spectrogram"] = _picture(run, spectrograms[unit], embed)
    where = "inside this page" if embed else "files in folders beside this page: keep them together"
    page = render_page(
        _asset("page.html"),
        one_line(f"Evaluation of {Path(run.store.root).name}"),
        brief_of(run),
        style=_asset("page.css"),
        script="".join(_asset(f"{name}.js") for name in SCRIPTS),
        data=Markup(encode(page_data(run, sources, f"The videos are {where}."))),
        fewest=FEWEST_PROMPTS,
        videos=elements,
    )
    write_html(path, page)
    return path


def _picture(run: Run, path: str, embed: bool) -> str:
    """The address of a PNG file of the run: its link, or all of its bytes."""
    if not embed:
        return quote(path)
    content = base64.b64encode(run.store.local_path(path).read_bytes()).decode("ascii")
    return f"data:image/png;base64,{content}"


def _videos(run: Run, previews: Path) -> dict[str, Path]:
    """Paths of videos that browsers can play, by unit id, some as copies in `previews`."""
    videos = {}
    for record in run.records:
        if record.video is None:
            continue
        video = run.store.local_path(record.video)
        if run.job.video != "h264":
            with suppress(av.FFmpegError, ValueError, IndexError):
                flac = None if record.sound is None else run.store.local_path(record.sound)
                videos[record.unit] = _playable(record, video, previews, flac)
        else:
            with video.open("rb") as file:  # av would take most of the report's time to open thousands
                if file.read(8)[4:] == MP4_MARK:
                    videos[record.unit] = video
    return videos


def _playable(record: VideoRecord, video: Path, previews: Path, flac: Path | None = None) -> Path:
    """The video if it is H.264 with yuv420p, else a copy in `previews`, because browsers decode no H.264 in RGB."""
    with av.open(str(video)) as container:
        codec, rate = container.streams.video[0].codec_context, float(container.streams.video[0].average_rate or 16)
        if codec.name == "h264" and codec.pix_fmt == "yuv420p":
            return video
    preview = previews / record.variant / f"{record.unit}.mp4"
    if not preview.is_file() or preview.stat().st_mtime < video.stat().st_mtime:
        frames = load_video(video)
        sound = load_sound(video) if flac is None else load_flac(flac)
        is_even = frames.shape[1] % 2 == 0 and frames.shape[2] % 2 == 0
        with replacing(preview) as partial:
            # yuv420p has a colour for each 2x2 pixels, so sides must be even.
            save_video(frames, partial, rate, scale=1 if is_even else 2, sound=sound)
    return preview


def _asset(name: str) -> str:
    return (files("galaxydit.eval.report") / "assets" / name).read_text(encoding="utf-8")
