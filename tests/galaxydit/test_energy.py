"""Joules of a generation: only what its devices used between its first and last moment."""

import logging
import math
import multiprocessing
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from simulated_gpu import BLOCK, DECODER, TEXT, SimulatedCounter
from torch import distributed

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, energy
from galaxydit.description import describe
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.stopwatch import FIRST, LAST, Stopwatch, by_rank

PROMPT = "a red ball moves left"
BLOCKS, BRANCHES, STEPS, COMPUTED = 3, 2, 12, 6
CPU = torch.device("cpu")
HALF = GalaxyDiTConfig(FixedSteps((0, 1, 2, 5, 8, 11)))
pytestmark = pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning", "ignore::galaxydit.ProfileWarning")


@pytest.fixture
def settings(tiny_settings: GenerationSettings) -> GenerationSettings:
    return replace(tiny_settings, steps=STEPS)


@pytest.fixture
def pipe(tiny_wan_pipeline: WanPipeline, simulated_gpu: SimulatedCounter) -> WanPipeline:
    simulated_gpu.connect(tiny_wan_pipeline)
    return tiny_wan_pipeline


def denoising(calls: int) -> int:
    """Joules of so many computed steps."""
    return calls * BRANCHES * BLOCKS * BLOCK


def decoding(pipe: WanPipeline, simulated_gpu: SimulatedCounter) -> int:
    """Joules of decoding one video, which may call the decoder several times."""
    before = simulated_gpu.joules
    with torch.no_grad():
        pipe.vae.decode(torch.zeros(1, pipe.vae.config.z_dim, 2, 4, 4))
    assert (simulated_gpu.joules - before) % DECODER == 0
    return simulated_gpu.joules - before


def test_a_plain_video_has_the_joules_of_all_that_ran(
    pipe: WanPipeline, settings: GenerationSettings, simulated_gpu: SimulatedCounter
) -> None:
    made = generate(pipe, PROMPT, settings, 0).energy
    assert made.denoise == denoising(STEPS)
    assert made.end_to_end == denoising(STEPS) + BRANCHES * TEXT + decoding(pipe, simulated_gpu)
    assert made.devices == {"cpu": made.denoise}
    assert made.note == ""


def test_a_report_has_the_joules_of_the_computed_steps(
    pipe: WanPipeline, settings: GenerationSettings, simulated_gpu: SimulatedCounter
) -> None:
    with galaxydit.accelerate(pipe, config=HALF) as acceleration:
        video = generate(pipe, PROMPT, settings, 0)
    found = acceleration.report.energy_joules
    assert found is not None
    assert found.denoise == denoising(COMPUTED)
    assert found.end_to_end == denoising(COMPUTED) + BRANCHES * TEXT + decoding(pipe, simulated_gpu)
    assert video.energy == found
    assert acceleration.report.to_dict()["energy_joules"]["denoise"] == denoising(COMPUTED)
    assert f"denoising {denoising(COMPUTED)} J" in str(acceleration.report)


def test_warm_up_and_what_runs_between_generations_do_not_count(
    pipe: WanPipeline, settings: GenerationSettings, simulated_gpu: SimulatedCounter
) -> None:
    with galaxydit.accelerate(pipe, config=HALF) as acceleration:
        generate(pipe, PROMPT, replace(settings, steps=2), 0)
        simulated_gpu.draw(10_000)
        generate(pipe, PROMPT, settings, 0)
        simulated_gpu.draw(10_000)
        generate(pipe, PROMPT, settings, 1)
        simulated_gpu.draw(10_000)
    joules = [report.energy_joules and report.energy_joules.denoise for report in acceleration.reports]
    assert joules == [denoising(2), denoising(COMPUTED), denoising(COMPUTED)]
    whole = [report.energy_joules and report.energy_joules.end_to_end for report in acceleration.reports]
    assert whole[1] == whole[2]
    assert (whole[1] or 0) < 10_000


def test_a_generation_that_fails_leaves_no_joules_to_the_next(
    pipe: WanPipeline, settings: GenerationSettings, simulated_gpu: SimulatedCounter
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("stopped")

    with galaxydit.accelerate(pipe, config=HALF) as acceleration:
        handle = pipe.transformer.blocks[2].register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="stopped"):
            generate(pipe, PROMPT, settings, 0)
        handle.remove()
        generate(pipe, PROMPT, settings, 0)
    first, second = (report.energy_joules for report in acceleration.reports)
    assert first is None or first.denoise is None
    assert second is not None
    assert second.denoise == denoising(COMPUTED)


def test_a_bare_transformer_has_no_joules_from_end_to_end(pipe: WanPipeline, settings: GenerationSettings) -> None:
    with galaxydit.accelerate(pipe.transformer, config=HALF, scheduler=pipe.scheduler) as acceleration:
        generate(pipe, PROMPT, settings, 0)
    found = acceleration.report.energy_joules
    assert found is not None
    assert (found.denoise, found.end_to_end) == (denoising(COMPUTED), None)


@pytest.mark.parametrize("speedup", [None, 2.0, 3.0])
def test_the_counter_is_read_four_times_in_a_generation(
    pipe: WanPipeline, settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch, speedup: float | None
) -> None:
    read, numbers = energy.Meter.read, []
    monkeypatch.setattr(energy.Meter, "read", lambda *given: numbers.append(1) or read(*given))
    with galaxydit.accelerate(pipe, speedup=speedup) if speedup else nullcontext():
        for seed in range(2):
            assert generate(pipe, PROMPT, replace(settings, steps=20), seed).energy.denoise
    assert len(numbers) == 2 * 4


def test_the_pipelines_own_call_reads_no_step_but_the_last(
    pipe: WanPipeline, settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, numbers = energy.Meter.read, []
    monkeypatch.setattr(energy.Meter, "read", lambda *given: numbers.append(1) or read(*given))
    with galaxydit.accelerate(pipe, config=HALF) as acceleration:
        pipe(PROMPT, height=32, width=32, num_frames=5, num_inference_steps=STEPS)
    assert acceleration.report.energy_joules.end_to_end == denoising(COMPUTED) + BRANCHES * (TEXT) + 2 * DECODER
    assert len(numbers) == 2 * BRANCHES + 1 + BRANCHES + 1  # texts, first call, calls of the last step, end


def test_reading_the_counter_takes_none_of_the_seconds(
    pipe: WanPipeline, settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, read = [0.0], energy.Meter.read

    def read_slowly(*given: Any) -> energy.Reading:
        seconds[0] += 1.0
        return read(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: seconds[0])
    monkeypatch.setattr(energy.Meter, "read", read_slowly)
    with galaxydit.accelerate(pipe, config=HALF) as acceleration:
        video = generate(pipe, PROMPT, settings, 0)
        pipe(PROMPT, height=32, width=32, num_frames=5, num_inference_steps=STEPS)
    assert seconds[0] >= 8
    assert (video.denoise_seconds, video.end_to_end_seconds) == (0.0, 0.0)
    for report in acceleration.reports:
        assert (report.denoise_seconds, report.end_to_end_seconds) == (0.0, 0.0)


def test_describing_a_pipeline_opens_no_counter(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(energy, "_meter", lambda *given: opened.append(given))
    describe(tiny_wan_pipeline)
    assert not opened


def begun(owner: str) -> Stopwatch:
    watch = Stopwatch(CPU, owner)
    watch.mark(FIRST)
    return watch


def energy_of(watch: Stopwatch) -> energy.Energy | None:
    watch.mark(LAST)
    watch.share(None)
    return watch.energy()


def test_generations_at_the_same_time_are_named_so(simulated_gpu: SimulatedCounter) -> None:
    alone = begun("a")
    simulated_gpu.draw(3)
    assert energy_of(alone) == energy.Energy(3.0, None, {"cpu": 3.0}, "")

    both = begun("a"), begun("b")
    simulated_gpu.draw(5)
    for watch in both:
        found = energy_of(watch)
        assert found is not None
        assert (found.denoise, found.note) == (5, energy.SHARED_GENERATION)


@pytest.mark.parametrize(("processes", "note"), [(1, ""), (2, energy.SHARED_PROCESS)])
def test_another_process_on_the_device_is_named(
    simulated_gpu: SimulatedCounter, monkeypatch: pytest.MonkeyPatch, processes: int, note: str
) -> None:
    import pynvml
    from zeus.device import get_gpus

    get_gpus().gpus[0].handle = "handle"
    found = [SimpleNamespace(pid=number) for number in range(processes)]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda handle: found)
    watch = begun("a")
    simulated_gpu.draw(1)
    made = energy_of(watch)
    assert made is not None
    assert made.note == note


def test_threads_read_every_joule_once(simulated_gpu: SimulatedCounter) -> None:
    meter = energy.meter_of(CPU)
    assert isinstance(meter, energy.Meter)
    first = meter.read().joules

    def use() -> None:
        for _ in range(50):
            simulated_gpu.draw(1)
            meter.read()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.read().joules - first == simulated_gpu.joules


def test_without_a_counter_nothing_is_claimed_and_the_reason_is_said_once(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, caplog: pytest.LogCaptureFixture
) -> None:
    energy._meter.cache_clear()
    with (
        caplog.at_level(logging.INFO, "galaxydit.energy"),
        galaxydit.accelerate(tiny_wan_pipeline) as acceleration,
    ):
        for seed in range(2):
            assert generate(tiny_wan_pipeline, PROMPT, settings, seed).energy == energy.Energy(None, None, {})
    assert [report.energy_joules for report in acceleration.reports] == [None, None]
    assert len([record for record in caplog.records if "no joules are measured" in record.message]) == 1
    assert " J" not in str(acceleration.report)


class FailingCounter:
    """Gives a joule more at each reading; the reading number `fails` raises, later ones only `for_good`."""

    def __init__(self, fails: int, *, for_good: bool) -> None:
        self.readings, self.fails, self.for_good = 0, fails, for_good

    def __call__(self) -> float:
        self.readings += 1
        if self.readings == self.fails or (self.for_good and self.readings > self.fails):
            raise RuntimeError("NVML: Unknown Error")
        return float(self.readings)


@pytest.mark.matrix(fails=range(1, 10), for_good=[True, False], accelerated=[True, False])
def test_a_reading_that_fails_leaves_the_video_and_says_why_joules_are_missing(
    tiny_wan_pipeline: WanPipeline,
    settings: GenerationSettings,
    monkeypatch: pytest.MonkeyPatch,
    fails: int,
    for_good: bool,
    accelerated: bool,
) -> None:
    counter = FailingCounter(fails, for_good=for_good)
    meter = energy.Meter("cuda:0", counter)
    monkeypatch.setattr(energy, "_meter", lambda device, cpu: meter)
    if not accelerated:
        found, last = generate(tiny_wan_pipeline, PROMPT, settings, 0).energy, 4
    else:
        with galaxydit.accelerate(tiny_wan_pipeline, config=HALF) as acceleration:
            tiny_wan_pipeline(PROMPT, height=32, width=32, num_frames=5, num_inference_steps=STEPS)
        found, last = acceleration.report.energy_joules, 8
        assert found is not None
        assert ("NVML" in str(acceleration.report)) == bool(found.note)
    assert found is not None
    assert counter.readings == last
    replaced = accelerated and fails == last - 2 and not for_good  # that of the last step's first branch
    if fails > last or replaced:
        assert None not in (found.denoise, found.end_to_end)
        assert found.note == ""
    else:
        assert None in (found.denoise, found.end_to_end)
        assert found.note == "the counter of cuda:0 cannot be read: RuntimeError: NVML: Unknown Error"


def test_a_reading_that_failed_is_missing_in_no_other_joules() -> None:
    meter = energy.Meter("cuda:0", FailingCounter(2, for_good=False))
    joules = [meter.read().joules for _ in range(4)]
    assert [math.isnan(one) for one in joules] == [False, True, False, False]
    assert joules[3] - joules[0] == 3.0


FELL = "the counter of cuda:0 fell, as after a reload of its driver"


@pytest.mark.parametrize(
    ("readings", "unknown", "note"),
    [
        # Two texts are read before and after, then the first call, both branches of the last step, and the end.
        ([50, 51, 52, 53, 0, 1, 2, 3], (False, False), ""),  # a fall between two intervals that count
        ([50, 51, 52, 53, 54, 1, 2, 3], (True, True), FELL),
        ([50, 51, 52, 53, 54, 55, 56, 3], (False, True), FELL),
        ([50, 1, 52, 53, 54, 55, 56, 57], (False, True), FELL),
        ([50, 51, 52, 53, 54, 5, 60, 70], (True, True), FELL),  # a wrap that is corrected late
        ([50, 51, 52, 53, 54, 54, 54, 54], (True, True), energy.TOO_SHORT),
        ([50, 51, 52, 53, 54, -math.inf, math.nan, 57], (True, False), "the counter of cuda:0 cannot be read: "),
        ([50, 51, 52, 53, 54, 55, 56, 57], (False, False), ""),
    ],
)
def test_joules_across_a_break_of_the_counter_are_unknown_and_the_report_says_why(
    tiny_wan_pipeline: WanPipeline,
    settings: GenerationSettings,
    monkeypatch: pytest.MonkeyPatch,
    readings: list[float],
    unknown: tuple[bool, bool],
    note: str,
) -> None:
    monkeypatch.setattr(energy, "STILL", math.inf)  # a busy machine takes longer than a counter's refresh
    meter = energy.Meter("cuda:0", iter(readings).__next__)
    monkeypatch.setattr(energy, "_meter", lambda device, cpu: meter)
    with galaxydit.accelerate(tiny_wan_pipeline, config=HALF) as acceleration:
        tiny_wan_pipeline(PROMPT, height=32, width=32, num_frames=5, num_inference_steps=STEPS)
    found = acceleration.report.energy_joules
    assert found is not None
    assert (found.denoise is None, found.end_to_end is None) == unknown
    assert all(joules > 0 for joules in (found.denoise, found.end_to_end) if joules is not None)
    assert found.note.startswith(note)
    assert bool(found.note) == bool(note)
    assert found.note in str(acceleration.report)


def test_a_counter_that_stands_still_while_texts_are_encoded_leaves_the_joules_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meter = energy.Meter("cuda:0", lambda: 5.0)
    monkeypatch.setattr(energy, "_meter", lambda device, cpu: meter)
    seconds = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: seconds[0])
    for length, is_known in ((energy.STILL / 2, True), (energy.STILL, False)):
        watch = begun("a")
        seconds[0] += length
        watch.mark(LAST)
        assert (watch.joules(FIRST, LAST) == 0.0) == is_known
    assert meter.failure == "the counter of cuda:0 stood still for 0.2 s of work"


def test_after_a_fall_the_next_generation_has_its_joules() -> None:
    counts = iter([1000.0, 0.0, 10.0, 25.0])
    meter = energy.Meter("cuda:0", counts.__next__)
    before, fallen, first, last = (meter.read() for _ in range(4))
    assert math.isnan(meter.between(before, fallen, 1.0))
    assert math.isnan(meter.between(before, last, 1.0))
    assert meter.between(first, last, 1.0) == 15.0


def _rank(number: int, folder: Path, joules: list[float | None], answers: Any) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=number, world_size=2)
    answers.put((number, by_rank(distributed.group.WORLD, joules[number], CPU)))
    distributed.destroy_process_group()


@pytest.mark.parametrize("joules", [[3.0, 4.0], [3.0, None]])
def test_ranks_that_share_a_video_add_up_their_joules(tmp_path: Path, joules: list[float | None]) -> None:
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    ranks = [context.Process(target=_rank, args=(number, tmp_path, joules, answers)) for number in range(2)]
    for rank in ranks:
        rank.start()
    found = dict(answers.get(timeout=60) for _ in ranks)
    for rank in ranks:
        rank.join()
    whole = None if None in joules else {"rank 0": 3.0, "rank 1": 4.0}
    assert found == {0: whole, 1: whole}
