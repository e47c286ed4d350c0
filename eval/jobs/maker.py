"""Make the videos of a job: generate them, measure the decoded frames and the sound, encode them."""

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from safetensors import SafetensorError

import galaxydit
from galaxydit.calibration.generation_observer import observed
from galaxydit.errors import GalaxyDiTError, noted, refusal
from galaxydit.eval.jobs.decoder_input import decode_frames, from_bytes, recording, to_bytes
from galaxydit.eval.jobs.job import FEWER_STEPS, OWN, PLUGIN, Job, Variant, calibration_of
from galaxydit.eval.jobs.jobfile import named
from galaxydit.eval.jobs.record import BASELINE, DECODER_INPUT, SOUND, SPECTROGRAM, THUMBNAIL, VIDEO, to_plain
from galaxydit.eval.jobs.run_job import FILES, KIND
from galaxydit.eval.methods.method_registry import load_method
from galaxydit.eval.methods.plugins_behind import check_plugins
from galaxydit.eval.metrics import METRICS, measure
from galaxydit.eval.spectrogram import encode_spectrogram
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.additions import share_video
from galaxydit.pipelines.compute_counter import BlockPart, measure_parts
from galaxydit.pipelines.conditions import code_identity, conditions_of
from galaxydit.pipelines.flac import encode_flac, load_flac
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.inputs import verify_files
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.loading_bars import without_loading_bars
from galaxydit.pipelines.modular import hide_progress
from galaxydit.pipelines.prompt_length import warn_of_long_prompts
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import Maker, Output, Rank, Record, Store, StoredFile, Unit
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import (
    WARM_UP_STEPS,
    Attach,
    PlainVideo,
    accelerated,
    generate_with,
    plain,
    result_of,
)
from galaxydit.pipelines.video import Sound, encode_thumbnail, encode_video, hash_frames

logger = logger_of(__name__)

CALIBRATION_SEED, COMPARISON_SEED = 1_000_000, 50_000
TIMINGS = "denoise_seconds", "end_to_end_seconds", "avg_power_watts", "denoise_joules", "energy_per_video_joules"


@dataclass(eq=False)
class VideoMaker(Maker):
    """Makes units of a job on one worker; the last baseline stays in memory for its variants."""

    job: Job
    store: Store
    record: Path | None = None  # file for the recording of the first plain video; what exists is kept
    parts: tuple[BlockPart, ...] = ()
    _baseline: tuple[str, GeneratedVideo | PlainVideo] | None = None
    _can_decode_again: bool = False

    def prepare(self, rank: Rank) -> None:
        """Load the model, and make a warm-up video of at most 3 steps.

        It takes one-time costs, fails early, and shows whether decoding again gives equal bits. Raises GalaxyDiTError
        for a store of another model and unsuitable variants.
        """
        job = self.job
        pipe, settings = self.pipe, self.settings = load(job)
        share_video(pipe, rank)
        self.store.bind("model", conditions_of(pipe, settings))
        for variant in job.variants:
            with named(f"variants.{variant.name}: "):
                self._check(variant)
        if rank.index == 0:
            warn_of_long_prompts(pipe, job.prompts)
        prompt, seed = job.prompts[0], job.seeds_of(0)[0]
        if settings.steps is not None:
            with recording(pipe) as inputs:
                video = generate(pipe, prompt, replace(settings, steps=min(WARM_UP_STEPS, settings.steps)), seed)
            # The ranks of a shared video have to take the same path, also if a hash differs on one of them.
            if job.baseline and rank.size == 1 and len(inputs) == 1:
                self._can_decode_again = decode_frames(pipe, inputs[0], hash_frames(video.frames)) is not None
        elif job.comparison or any(variant.method == FEWER_STEPS for variant in job.variants):
            raise GalaxyDiTError("steps is missing: expected a whole number from 1; set steps in the job file")
        if job.comparison or any(variant.method not in (BASELINE, *OWN) for variant in job.variants):
            self.parts = measure_parts(pipe, prompt, settings, seed)

    def _check(self, variant: Variant) -> None:
        """Raise GalaxyDiTError if a variant does not suit the model or the number of steps."""
        pipe, steps = self.pipe, self.settings.steps
        compared = None if variant.method in (BASELINE, *OWN) else load_method(variant.method)
        check_plugins(variant.files, compared, variant.options.get("profile"))
        if variant.method == PLUGIN:
            galaxydit.accelerate(pipe, **variant.options).remove()
        elif variant.method not in (BASELINE, FEWER_STEPS):
            method, given = load_method(variant.method), variant.options
            count = "of" if "of" in given else "steps"
            if given.get(count, steps) != steps:
                raise refusal(count, given[count], f"{steps}, the steps of the job", f"pass {count} = {steps}")
            if method.calibrate is None:
                with method.attach(pipe, given, None):
                    pass

    def make(self, unit: Unit) -> Output:
        """Measurements and files of a video, or a method's calibration."""
        hashes = (self.store.conditions(KIND) or {}).get(FILES, {})
        verify_files(unit.data.get("prompts") or [unit.data["prompt"]], hashes)
        if "calibrates" in unit.data:
            calibrate = load_method(unit.data["calibrates"]).calibrate
            assert calibrate is not None  # such a unit exists only for methods that calibrate
            seed = COMPARISON_SEED if self.job.comparison else CALIBRATION_SEED
            return Output(calibrate(self.pipe, unit.data["prompts"], self.settings, seed))
        variant = Variant(**unit.data["variant"])
        is_baseline = variant.method == BASELINE
        share_of_steps = 1.0 if is_baseline else None
        if variant.method == FEWER_STEPS and self.settings.steps:
            share_of_steps = variant.options["steps"] / self.settings.steps
        baseline = self._baseline_of(unit) if self.job.baseline and not is_baseline else None
        keeps_input = is_baseline and self._can_decode_again
        records = self.record if is_baseline and self.record is not None and not self.record.exists() else None
        with ExitStack() as stack:
            inputs = stack.enter_context(recording(self.pipe)) if keeps_input else []
            observer = stack.enter_context(observed(self.pipe)) if records else None
            made = self._generate(unit)
        if records is not None and observer is not None:
            observer.save(records, self.settings, made.prompt, made.seed)
        failures: dict[str, str] = {}
        files = self._files_of(unit, made, failures)
        if is_baseline:
            plain_video = PlainVideo(made.frames, made.operations, sound=made.sound) if records else made
            self._baseline = (unit.id, plain_video)
        if keeps_input:
            with noted(failures, DECODER_INPUT):
                files[DECODER_INPUT] = to_bytes(inputs[0])
        known = [METRICS[name] for name in (METRICS if self.job.metrics is None else self.job.metrics)]
        metrics = [metric for metric in known if self.job.baseline or not metric.needs_reference]
        result = result_of(
            self.pipe,
            made,
            baseline,
            share_of_steps,
            counted=self.job.comparison and not is_baseline,
            measure=partial(measure, metrics=metrics),
            code=code_identity(),
        )
        observing: dict[str, Any] = dict.fromkeys(TIMINGS) if records else {}  # because it takes time
        return Output(to_plain(replace(result, failures={**failures, **result.failures}, **observing)), files)

    def _files_of(self, unit: Unit, made: GeneratedVideo, failures: dict[str, str]) -> dict[str, bytes]:
        """The video, its sound and their pictures, as far as this job keeps them; `failures` is extended."""
        is_kept, files = self._is_kept(unit), {}
        if is_kept:
            is_lossless = self.job.video == "lossless"
            files[VIDEO] = encode_video(made.frames, self.settings.fps, lossless=is_lossless, sound=made.sound)
            with noted(failures, THUMBNAIL):
                files[THUMBNAIL] = encode_thumbnail(made.frames[0])
        is_baseline = unit.data["variant"]["method"] == BASELINE
        if made.sound is not None and (is_kept or is_baseline):  # a resumed job compares with the file of the baseline
            files[SOUND] = encode_flac(made.sound)
        if made.sound is not None and is_kept:
            with noted(failures, SPECTROGRAM):
                files[SPECTROGRAM] = encode_spectrogram(made.sound)
        return files

    def _is_kept(self, unit: Unit) -> bool:
        """Whether the video becomes a file; of a comparison only those of the first prompt and seed do."""
        if not self.job.comparison:
            return True
        is_first = unit.data["prompt_index"] == unit.data["sample"] == 0
        return is_first and find_spec("av") is not None  # machines that only compute need no av

    def _generate(self, unit: Unit) -> GeneratedVideo:
        variant, prompt, seed = Variant(**unit.data["variant"]), unit.data["prompt"], unit.data["seed"]
        settings, parts = self.settings, self.parts
        attach: Attach = plain
        if variant.method == PLUGIN:
            attach = partial(accelerated, **variant.options)
            parts = self.parts if self.job.comparison else ()
        elif variant.method != BASELINE:
            method, calibrated = load_method(variant.method), calibration_of(variant.method)
            record = self.store.read_sound(self.job.calibration_unit(calibrated).id) if calibrated else None
            calibration = record and record.result
            attach = lambda pipe: method.attach(pipe, variant.options, calibration)  # noqa: E731
            settings = settings if method.generation is None else method.generation(settings, variant.options)
        return generate_with(self.pipe, prompt, settings, seed, attach, parts)

    def _baseline_of(self, unit: Unit) -> GeneratedVideo | PlainVideo:
        """The unit's baseline: from memory, decoded, or generated again. Raises GalaxyDiTError if it failed."""
        baseline = self.job.unit_of(unit)
        record = self.store.read_sound(baseline.id)
        if record is not None and not record.is_done:
            raise GalaxyDiTError(f"{baseline.id} failed, so there is nothing to compare with")
        if self._baseline is None or self._baseline[0] != baseline.id:
            restored = None if record is None else self._restore(record)
            self._baseline = (baseline.id, restored or self._generate_again(baseline, record))
        return self._baseline[1]

    def _restore(self, record: Record) -> PlainVideo | None:
        """The baseline from its record: frames decoded from the decoder input, the sound read from its FLAC file.

        None if the decoder input is missing or gives other frames, or a file cannot be read.
        """
        operations, file = record.result.get("block_operations"), record.files.get(DECODER_INPUT)
        sound_file = record.files.get(SOUND)
        if not self._can_decode_again or file is None or (self.parts and not operations):
            return None
        try:
            latents = from_bytes(self.store.local_path(file.path).read_bytes())
            sound = None if sound_file is None else self._stored_sound(sound_file)
        except (OSError, SafetensorError, KeyError, GalaxyDiTError) as error:
            logger.warning("%s cannot be read (%s), so it is generated again", record.unit, error)
            return None
        frames = decode_frames(self.pipe, latents, record.result["frames_sha256"])
        return None if frames is None else PlainVideo(frames, operations or 0.0, sound=sound)

    def _stored_sound(self, file: StoredFile) -> Sound:
        """The sound of a baseline's file. Raises GalaxyDiTError for another one than was stored."""
        path = self.store.local_path(file.path)
        if hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            raise GalaxyDiTError(f"{file.path} has another content than its record says")
        return load_flac(path)

    def _generate_again(self, unit: Unit, record: Record | None) -> GeneratedVideo:
        made = self._generate(unit)
        if record is not None and hash_frames(made.frames) != record.result["frames_sha256"]:
            logger.warning("%s differed the second time: this device does not compute reproducibly", unit.id)
        return made


def load(job: Job) -> tuple[DiffusionPipeline, GenerationSettings]:
    """The pipeline of a job, and its settings, recommended where the job sets none."""
    dtype = None if job.dtype is None else getattr(torch, job.dtype)
    with without_loading_bars():
        pipe = load_pipeline(job.model, dtype=dtype, revision=job.revision, offload=job.offload, **job.additions)
    hide_progress(pipe)
    return pipe, replace(recommended_settings(pipe), **job.settings)
