"""The job of a validation: the plain pipeline, controls that need no plugin, and the plugin."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from galaxydit.errors import listed, refusal
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.jobfile import job_of
from galaxydit.pipelines.published_models import WAN_TINY, checkpoint_of

RUNS = {
    "galaxydit-2x": "the plugin, `speedup=2`",
    "galaxydit-2.5x": "the plugin, `speedup=2.5`",
    "galaxydit-proxy-2x": 'the plugin, `speedup=2, policy="proxy"`',
    "repeated-plain-run": "every step computed, the first outputs rounded differently",
    "half-the-steps": "plain, half the steps",
    "plain-at-2x-levels": "plain, only the noise levels that the plugin computes at 2x",
    "published-list": "a published step list, residuals repeated",
}
"""The runs beside the plain run, in the order in which they are made, each with its description."""


def validation_prompts() -> tuple[str, ...]:
    """Ten prompts of this project; no profile was measured on them."""
    return tuple((files(__package__) / "prompts.txt").read_text(encoding="utf-8").splitlines())


def validation_job(keys: dict[str, Any], prompts: tuple[str, ...], runs: tuple[str, ...] = tuple(RUNS)) -> Job:
    """The job with these prompts and `runs`, names in `RUNS`; metrics are PSNR, SSIM, LPIPS and those of sound.

    LPIPS is left out without its weights. `keys` are those of a job file, at least "model". Raises GalaxyDiTError for
    an unknown run, and without "steps" for a model that has no recommended steps.
    """
    prompts, runs = listed("prompts", prompts), listed("runs", runs)
    for name in runs:
        if name not in RUNS:
            raise refusal("runs", name, f"one of {', '.join(RUNS)}", "check the spelling")
    checkpoint = checkpoint_of(keys.get("base") or keys["model"])
    recommended = None if checkpoint is None else checkpoint.settings
    if keys["model"] == "wan-tiny":
        recommended = WAN_TINY
    steps = keys.get("steps") or (None if recommended is None else recommended.steps)
    if steps is None:
        raise refusal("steps", None, "a number of steps for a model that is not published", "pass for example steps=50")
    from galaxydit.eval.methods import step_lists
    from galaxydit.eval.metrics import METRICS

    variants = {
        "repeated-plain-run": {"steps": steps},
        "half-the-steps": {"method": "fewer-steps", "steps": steps // 2},
        "plain-at-2x-levels": {"method": "plain-at-scheduled-levels", "speedup": 2.0, "of": steps},
        "published-list": {"method": "step-list", **step_lists.settings(steps)[0]},
        "galaxydit-2x": {"method": "galaxydit", "speedup": 2.0},
        "galaxydit-2.5x": {"method": "galaxydit", "speedup": 2.5},
        "galaxydit-proxy-2x": {"method": "galaxydit", "speedup": 2.0, "policy": "proxy"},
    }
    own: dict[str, Any] = {"steps": steps, "prompts": {"texts": list(prompts)}}
    visible = [name for name in ("psnr", "ssim", "lpips") if METRICS[name].missing() is None]
    own["metrics"] = [*visible, "si_sdr", "log_mel", "rms_ratio"]
    own["variants"] = {name: variants[name] for name in RUNS if name in runs}
    return job_of(keys | own, Path())
