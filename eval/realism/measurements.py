"""Measure on a model the quantities that are published for the weights of Wan2.1-T2V-1.3B.

Plain generations compute every step; a reused step reuses an earlier output instead. PSNRs are against plain
generations of the same prompt and noise.
"""

import json
import logging
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial, partialmethod
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import DiffusionPipeline

from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.published import NAME, Published
from galaxydit.calibration.rank import rank_proxies
from galaxydit.eval.compare.compute_counter import only_transformer
from galaxydit.eval.compare.method import Setting
from galaxydit.eval.compare.methods import optimised_noise_levels, schedule_search, step_list
from galaxydit.eval.compare.trajectory import record
from galaxydit.eval.realism import PARTS
from galaxydit.eval.realism.curvature import change_per_step, error_gain
from galaxydit.eval.realism.methods import MethodBench
from galaxydit.eval.realism.step_lists import Cases, PublishedRow, References, compared, measure_row
from galaxydit.files import replacing
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.runs import hash_of
from galaxydit.pipelines.settings import GenerationSettings

logger = logging.getLogger(__name__)

PROBED_STEPS = (1, 10, 20, 30, 40)
RANKED_SAMPLES = 4
TUNING_PROMPTS = 2
# Part, key of its result, name, minimum and maximum.
GOALS = (
    ("step lists", "mean_absolute_difference", "step lists: mean absolute difference, dB", None, 3),
    ("step lists", "spearman", "step lists: Spearman's rho", 0.8, None),
    ("methods shift 3", "spearman", "methods shift 3: Spearman's rho", 0.8, None),
    ("methods shift 5", "spearman", "methods shift 5: Spearman's rho", 0.8, None),
    ("curvature", "within_factor_2", "curvature: steps within a factor of 2, of 46", 40, None),
    ("residual", "mean_absolute_difference", "magnitude ratio: mean absolute difference", None, 0.015),
    ("propagation", "first_by_40", "gain of the first step / step 40", 4, 8),
)


@dataclass(eq=False)
class Realism:
    """Measures one pipeline. A part of the measurement is the result of one method, as JSON data.

    `PARTS` names the parts; the method of the part "step lists" is `step_lists`, and so on. The pipeline must have one
    transformer.

    Attributes:
        published: the published measurements, with the flow shift and guidance scale of each.
        cases: prompts and seeds that are measured.
        tuning: prompts and seeds on which other projects' methods are calibrated and tuned.
        settings: of all generations, except for flow shift and guidance scale.
        shift_factor: flow shift of the pipeline / published flow shift.
        progress: receives the name of each part, and within a part the name of each row or step, before it is measured.
    """

    pipe: DiffusionPipeline
    published: Published
    cases: Cases
    tuning: Cases
    settings: GenerationSettings
    shift_factor: float
    progress: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        only_transformer(self.pipe)
        self.references = References(self.pipe, self.cases, self.settings, self.shift_factor)
        self._measured = cache(partial(measure_row, self.references))

    def run(self, out: Path, parts: Sequence[str] = PARTS) -> dict[str, Any]:
        """Measure those of `parts` that the file `out` (realism.json) lacks, and write it after each part.

        Returns the content of the file: the key "conditions", a key for each measured part, and "goals", the list that
        `goals` returns.

        If `out` was measured under other `conditions`, it is first renamed to a name with a hash of those conditions. A
        later run under those conditions renames it back and continues it.
        """
        conditions = json.loads(json.dumps(self.conditions()))  # as they are read back
        results = _read(out)
        if results.get("conditions") != conditions:
            if "conditions" in results:
                other = out.replace(_beside(out, results["conditions"]))
                logger.warning("%s was measured under other conditions; it is kept as %s", out, other.name)
            earlier = _beside(out, conditions)
            results = {"conditions": conditions} | (_read(earlier.replace(out)) if earlier.exists() else {})
        for part in parts:
            if part not in results:
                self.progress(part)
                results[part] = getattr(self, part.replace(" ", "_"))()
                results["goals"] = goals(results)
                with replacing(out) as unfinished:
                    unfinished.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        return results

    def conditions(self) -> dict[str, Any]:
        """What the results depend on, as JSON data.

        Keys: "published" (name of the published data), "prompts", "seeds" and "batch" (of `cases`), "tuning" (prompts),
        the keys of `conditions_of` (the pipeline's components, weights and settings), "shift_factor", "versions" (of
        torch and diffusers) and "machine" (the processor's architecture).
        """
        return {
            "published": NAME,
            "prompts": list(self.cases.prompts),
            "seeds": list(self.cases.seeds),
            "batch": self.cases.batch,
            "tuning": list(self.tuning.prompts),
            **conditions_of(self.pipe, self.settings),
            "shift_factor": self.shift_factor,
            "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__},
            "machine": platform.machine(),
        }

    def step_lists(self) -> dict[str, Any]:
        """PSNR in dB of each prompt with each published step list, beside the published PSNR.

        A step list names the steps that are computed; the others are reused. Some rows are plain sampling with fewer
        steps instead. Keys: "rows", dicts of "name", "published" PSNR, "psnr" of each prompt and their "mean";
        "spearman", Spearman's rho of mean and published PSNR over the rows; and "mean_absolute_difference",
        |mean - published| averaged over the rows, dB.
        """
        rows = []
        for row in self.published.step_lists:
            self.progress(row.name)
            rows.append(self._measured(row))
        difference = float(np.mean([abs(row.mean - row.published) for row in rows]))
        return {"mean_absolute_difference": difference, **compared(rows)}

    def _methods(self, name: str) -> dict[str, Any]:
        """PSNR in dB of other projects' methods, beside the published PSNR.

        Keys: "rows", dicts of "name", "published" PSNR, "psnr" of each prompt and their "mean"; and "spearman",
        Spearman's rho of mean and published PSNR over the rows. A row also has "compute" (operations in the blocks /
        those of a plain generation) and "setting" (the method's parameters), unless the published comparison names one
        of the published step lists for it: then its PSNRs are those of this list in `step_lists`.
        `name` is the published comparison, "methods_shift_3" or "methods_shift_5" after its flow shift.
        """
        table = self.published.data[name]
        bench = MethodBench(self.references, self.tuning, table["flow_shift"], table["guidance"])
        rows: list[PublishedRow] = []
        for row in table["rows"]:
            self.progress(row["name"])
            if "row" in row:
                measured = self._measured(self.published.step_list(row["row"]))
                rows.append(replace(measured, name=row["name"], published=row["psnr"]))
            else:
                rows.append(bench.measure(row))
        return compared(rows)

    methods_shift_3 = partialmethod(_methods, "methods_shift_3")
    methods_shift_5 = partialmethod(_methods, "methods_shift_5")

    def curvature(self) -> dict[str, Any]:
        """Change of the velocity (the guided prediction) over each step: "change_per_step", a list.

        The change is the norm of the second derivative by sigma of the latents' path, projected to a plane, times the
        step's length in sigma, divided by the distance from the initial noise to the final latent; mean over the plain
        generations (`curvature.change_per_step`). "within_factor_2" is the number of steps at which the change lies
        within a factor of 2 of the published change, "of" the number of steps that are compared.
        """
        table = self.published.data["curvature"]
        plain, _ = self.references.at(table["flow_shift"], table["guidance"])
        ours = np.mean([change_per_step(trajectory) for trajectory in plain], axis=0)
        ratio = ours[table["steps"]] / np.array(table["change_per_step"])
        within = [bool(0.5 <= value <= 2) for value, step in zip(ratio, table["steps"], strict=True) if step <= 48]
        return {"change_per_step": ours.tolist(), "within_factor_2": sum(within), "of": len(within)}

    def propagation(self) -> dict[str, Any]:
        """Gain of an error at each of `PROBED_STEPS`, for the prompts of the first batch of `cases`.

        The gain is the L2 norm of the final latent's deviation / that of the error of the step's guided prediction,
        mean over these prompts (`error_gain`). The error arises because this step alone reuses the block stack's
        residual (output - input) of the step before.
        Keys: "gains" (one number by step, the step as text), "first_by_40" (gain at step 1 / gain at step 40) and
        "prompts" (number of these prompts).
        """
        law = self.published.data["propagation"]
        plain, settings = self.references.at(law["flow_shift"], law["guidance"])
        prompts, seeds = self.cases.batches[0]
        gains = {}
        for probed in PROBED_STEPS:
            self.progress(f"error at step {probed}")
            others = {"full": [step for step in range(self.references.steps) if step != probed]}
            with step_list.attach(self.pipe, others, None):
                reused = record(self.pipe, prompts, seeds, settings)
            gains[str(probed)] = error_gain(plain[0], reused, probed)
        return {"gains": gains, "first_by_40": gains["1"] / gains["40"], "prompts": len(prompts)}

    def residual(self) -> dict[str, Any]:
        """Change of the block stack's residual (output - input) from one step to the next, by step and guidance branch.

        "magnitude_ratio", |residual| / |residual at the previous step|, and "cosine_distance", 1 - cosine of these two
        residuals, are computed for each token and averaged over tokens and generations. Both are lists over the steps
        from step 1, each entry with one number per branch, the conditional branch first. "mean_absolute_difference" is
        one number, |measured - published magnitude ratio| averaged over the steps from step 2 and both branches.
        """
        table = self.published.data["residual"]
        plain, _ = self.references.at(table["flow_shift"], table["guidance"])
        changes = np.mean([trajectory.residual_changes for trajectory in plain], axis=0)
        ratios, cosines = changes[..., 0], changes[..., 1]
        branches = np.array([table["conditional"], table["unconditional"]]).T
        difference = np.abs(ratios - branches[: len(ratios)])[2:]
        return {
            "magnitude_ratio": ratios[1:].tolist(),
            "cosine_distance": cosines[1:].tolist(),
            "mean_absolute_difference": float(difference.mean()),
        }

    def proxies(self) -> dict[str, Any]:
        """Spearman's rho of each proxy with the error of the guided prediction that reuse would have.

        A proxy is a cheap measure of change between steps. Measured at the published flow shift 5 and guidance scale 5
        on the first four of `cases`. The only key is "ranking": for each proxy a dict of the fields of `RankedProxy`,
        the highest rho first. They are "proxy" (its name); "rho" over the steps of a generation, mean over the prompts,
        and its 95 % interval "low" and "high"; "between", rho over the prompts at the same step, and its interval
        "between_low" and "between_high"; "paper", `rho` for order 0 (the last full step repeated) without the first
        20 % of the steps; and "cost", here always 0.
        """
        settings = self.references.use(5, 5)
        cases = list(zip(self.cases.prompts, self.cases.seeds, strict=True))[:RANKED_SAMPLES]
        recordings = [record_sample(self.pipe, prompt, settings, seed)[0] for prompt, seed in cases]
        return {"ranking": [asdict(row) for row in rank_proxies(recordings).rows]}

    def noise_levels(self) -> dict[str, Any]:
        """PSNR in dB of generations with half the steps, none reused, against plain generations with all steps.

        The noise levels of the steps are those of one setting of the compared method "optimised noise levels": of its
        settings with half the steps, the one with the highest PSNR on the first two tuning prompts. Keys: "setting"
        (that setting: "steps"; "levels", a factor of the flow shift or "planned" for a chosen subset of the plain noise
        levels; "of", the number of plain steps), "psnr" (a list, one value for each prompt of `cases` with its seed)
        and "mean".
        """
        plain, settings = self.references.at(3, 5)
        steps = self.references.steps
        prompts, seeds = self.tuning.prompts[:TUNING_PROMPTS], self.tuning.seeds[:TUNING_PROMPTS]
        levels = schedule_search.search(self.pipe, prompts, settings, seeds[0])
        few = replace(settings, steps=steps // 2)

        def score(setting: Setting, prompts: Sequence[str], seeds: Sequence[int], frames: Any) -> list[float]:
            with optimised_noise_levels.METHOD.attach(self.pipe, setting, levels):
                videos = generate_batch(self.pipe, prompts, seeds, few)
            return [psnr(video, frame) for video, frame in zip(videos, frames, strict=True)]

        reference = generate_batch(self.pipe, prompts, seeds, settings)
        candidates = [each for each in optimised_noise_levels.METHOD.settings(steps) if each["steps"] == steps // 2]
        best = max(candidates, key=lambda setting: sum(score(setting, prompts, seeds, reference)))
        psnrs: list[float] = []
        for trajectory, batch in zip(plain, self.cases.batches, strict=True):
            psnrs += score(best, *batch, trajectory.frames)
        return {"setting": dict(best), "psnr": psnrs, "mean": float(np.mean(psnrs))}


def _beside(out: Path, conditions: Any) -> Path:
    return out.with_stem(f"{out.stem}-{hash_of(conditions)[:8]}")


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty object if the file is missing or damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals of the parts in `results` (the content of realism.json), in the order of `GOALS`.

    A goal has the keys "name", "value", "minimum" and "maximum" (None where open), and "holds".
    """
    figures = []
    for part, key, name, minimum, maximum in GOALS:
        if part in results:
            value = results[part][key]
            holds = (minimum is None or value >= minimum) and (maximum is None or value <= maximum)
            figures.append({"name": name, "value": value, "minimum": minimum, "maximum": maximum, "holds": holds})
    return figures
