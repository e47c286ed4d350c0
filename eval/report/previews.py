"""Videos that a browser can show."""

from pathlib import Path

import av

from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report.run import Run
from galaxydit.files import replacing
from galaxydit.pipelines.video import load_video, save_video


def playable(run: Run, record: VideoRecord, video: Path) -> Path:
    """The video itself if it is H.264 with yuv420p, which every browser plays; else such a copy of it in `previews/`.

    A lossless video is neither: browsers do not decode H.264 in RGB. An existing copy serves as long as it is newer.
    """
    with av.open(str(video)) as container:
        codec, rate = container.streams.video[0].codec_context, float(container.streams.video[0].average_rate or 16)
        if codec.name == "h264" and codec.pix_fmt == "yuv420p":
            return video
    preview = (run.root or video.parent) / "previews" / record.variant / f"{record.unit}.mp4"
    if not preview.is_file() or preview.stat().st_mtime < video.stat().st_mtime:
        frames = load_video(video)
        is_even = frames.shape[1] % 2 == 0 and frames.shape[2] % 2 == 0
        with replacing(preview) as partial:
            # yuv420p keeps one colour for four pixels, so that sides must be even.
            save_video(frames, partial, rate, scale=1 if is_even else 2)
    return preview
