"""`Acceleration.set` and `using`: each generation equals one of a fresh acceleration with its settings, bit for bit."""

import asyncio
import contextvars
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError, Report

REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"speedup": 3.0},
    {"quality": "lossless"},
    {"quality": "high", "policy": "proxy"},
    {"threshold": 0.5, "proxy": "block_residual"},
    {"max_error": 0.5, "proxy": "modulated_input"},
    {"config": GalaxyDiTConfig(FixedSteps((0, 1, 5)), reuse="residual")},
)
SEQUENCES = st.lists(st.tuples(st.booleans(), st.integers(0, len(REQUESTS) - 1), st.sampled_from([9, 12])), max_size=6)


def decisions(report: Report) -> list[Any]:
    return [(call.step, call.branch, call.reused, call.reason) for call in report.calls]


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(sequence=SEQUENCES)
def test_random_sequences_of_settings_equal_fresh_accelerations(
    tiny_wan: Any, sequence: list[tuple[bool, int, int]]
) -> None:
    fresh: dict[tuple[int, int], tuple[Tensor, list[Any]]] = vars(tiny_wan).setdefault("fresh", {})
    for _, index, steps in {(False, 0, 9), *sequence}:
        if (index, steps) not in fresh:
            with galaxydit.accelerate(tiny_wan.pipe, **REQUESTS[index]) as alone:
                fresh[index, steps] = tiny_wan.run(num_inference_steps=steps), decisions(alone.report)
    base = 0
    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:
        for in_block, index, steps in sequence:
            if in_block:
                with acceleration.using(**REQUESTS[index]) as request:
                    latents = tiny_wan.run(num_inference_steps=steps)
                report = request.report
                assert decisions(acceleration.report) == decisions(report)
            else:
                acceleration.set(**REQUESTS[index])
                base = index
                latents, report = tiny_wan.run(num_inference_steps=steps), acceleration.report
            assert torch.equal(latents, fresh[index, steps][0])
            assert decisions(report) == fresh[index, steps][1]
        if (base, 9) in fresh:
            assert torch.equal(tiny_wan.run(num_inference_steps=9), fresh[base, 9][0])
    assert len(acceleration.reports) == len(sequence) + ((base, 9) in fresh)
    assert not hasattr(tiny_wan.pipe.transformer.blocks[0], "_diffusers_hook")


def test_settings_are_checked_as_in_accelerate_and_wrong_ones_change_nothing(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, speedup=3.0) as acceleration:
        before = acceleration.config
        for change in (acceleration.set, acceleration.using):
            with pytest.raises(GalaxyDiTError, match="quality='fst' is not allowed"):
                change(quality="fst")
            with pytest.raises(GalaxyDiTError, match="config is given together with speedup"):
                change(speedup=2.0, config=GalaxyDiTConfig())
            with pytest.raises(GalaxyDiTError, match=r"no argument 'spedup': .*did you mean 'speedup'"):
                change(spedup=2.0)
        assert acceleration.config is before
    for change in (acceleration.set, acceleration.using):
        with pytest.raises(GalaxyDiTError, match="was removed"):
            change()


def test_a_context_that_is_never_entered_keeps_no_settings(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:
        others = acceleration._attachments._others
        for _ in range(3):
            acceleration.using(quality="lossless")
        assert others == []
        with acceleration.using(quality="lossless") as request:
            assert others == [request]
        assert others == []


def test_settings_within_a_generation_hold_from_the_next_one_on(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:
        expected = tiny_wan.run()
        with acceleration.using(quality="lossless"):
            plain = tiny_wan.run()

        def change(pipe: Any, step: int, *_: Any) -> dict[str, Any]:
            if step in (5, 11):
                acceleration.set(quality="lossless" if step == 5 else "fast")
            return {}

        assert torch.equal(tiny_wan.run(callback_on_step_end=change), expected)
        assert "hold from the next generation on" in " ".join(acceleration.report.notes)
        with pytest.raises(RuntimeError, match="stopped"):
            tiny_wan.run(callback_on_step_end=fail)
        acceleration.set(quality="lossless")
        assert torch.equal(tiny_wan.run(output_type="latent"), plain)
        assert acceleration.report.compute_fraction == 1.0
        tiny_wan.run(output_type="np")
        assert acceleration.report.end_to_end_seconds is not None


def fail(pipe: Any, step: int, *_: Any) -> dict[str, Any]:
    raise RuntimeError("stopped")


def test_tasks_and_threads_have_their_own_settings_and_reports(tiny_wan: Any) -> None:
    lock = threading.Lock()

    def generate() -> Tensor:
        with lock:  # a pipeline has one scheduler, so it makes one video at a time
            return tiny_wan.run()

    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:

        async def serve(quality: str) -> tuple[Tensor, Report]:
            with acceleration.using(quality=quality) as request:
                await asyncio.sleep(0)
                return await asyncio.to_thread(generate), request.report

        async def serve_all() -> list[tuple[Tensor, Report]]:
            return await asyncio.gather(*(serve(word) for word in ("lossless", "fast") * 3))

        def in_thread(quality: str) -> tuple[Tensor, Report]:
            with acceleration.using(quality=quality) as request:
                return generate(), request.report

        with ThreadPoolExecutor(4) as pool:
            results = asyncio.run(serve_all()) + list(pool.map(in_thread, ("lossless", "fast") * 3))
    for word, (latents, report) in zip(("lossless", "fast") * 6, results, strict=True):
        assert report.goal is not None
        assert word in report.goal.text
        assert torch.equal(latents, results[word == "fast"][0])
    assert len(acceleration.reports) == 12


def test_two_threads_may_denoise_at_once_with_different_settings(tiny_wan: Any) -> None:
    transformer = tiny_wan.pipe.transformer
    text = torch.randn(1, 8, transformer.config.text_dim)
    latents = torch.randn(1, transformer.config.in_channels, 2, 4, 4)

    def denoise(meet: threading.Barrier | None) -> Tensor:
        moving = latents
        for step in range(12):
            if meet is not None:
                meet.wait(60)
            with (
                torch.no_grad(),
                transformer.cache_context("cond", step_index=step, num_inference_steps=12, sigma=1 - step / 12),
            ):
                output = transformer(moving, torch.tensor([1000 - 80.0 * step]), text, return_dict=False)[0]
            moving = moving - output / 12
        transformer._reset_stateful_cache()
        return moving

    with galaxydit.accelerate(transformer) as acceleration:

        def request(quality: str, meet: threading.Barrier | None = None) -> Tensor:
            with acceleration.using(quality=quality):
                return denoise(meet)

        alone = {word: request(word) for word in ("lossless", "fast")}
        assert not torch.equal(alone["lossless"], alone["fast"])
        barrier = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            both = {word: pool.submit(request, word, barrier) for word in alone}
            assert all(torch.equal(both[word].result(), alone[word]) for word in alone)


def test_a_finished_generation_does_not_end_one_of_another_thread(tiny_wan: Any) -> None:
    transformer = tiny_wan.pipe.transformer
    text = torch.randn(1, 8, transformer.config.text_dim)

    @torch.no_grad()
    def denoise(moving: Tensor, steps: range) -> Tensor:
        for step in steps:
            with transformer.cache_context("cond", step_index=step, num_inference_steps=12, sigma=1 - step / 12):
                output = transformer(moving, torch.tensor([1000 - 80.0 * step]), text, return_dict=False)[0]
            moving = moving - output / 12
        return moving

    latents = [torch.randn(1, transformer.config.in_channels, 2, 4, 4) for _ in range(4)]
    with galaxydit.accelerate(transformer, config=GalaxyDiTConfig(FixedSteps((0, 1, 5)))):
        alone = []
        for latent in latents:
            alone.append(denoise(latent, range(12)))
            transformer._reset_stateful_cache()
        with ExitStack() as stack:
            *others, last = (stack.enter_context(ThreadPoolExecutor(1)) for _ in range(4))
            halves = [
                one.submit(denoise, latent, range(6)).result() for one, latent in zip(others, latents, strict=False)
            ]
            for steps in (range(12), range(1)):
                last.submit(denoise, latents[-1], steps).result()
                last.submit(transformer._reset_stateful_cache).result()
            rest = [one.submit(denoise, half, range(6, 12)).result() for one, half in zip(others, halves, strict=True)]
    assert all(map(torch.equal, rest, alone[:-1]))


def test_every_report_is_handed_on_once_when_its_generation_ends(tiny_wan: Any) -> None:
    seen: list[Report] = []
    with galaxydit.accelerate(tiny_wan.pipe, on_report=seen.append) as acceleration:
        tiny_wan.run()
        assert len(seen) == 1
        with acceleration.using(quality="fast") as request:
            with pytest.raises(GalaxyDiTError, match="does not exist yet"):
                _ = request.report
            tiny_wan.run()
        assert [report.goal for report in seen] == [report.goal for report in acceleration.reports]
    assert len(seen) == 2
    with pytest.raises(GalaxyDiTError, match="on_report=3 is not allowed"):
        galaxydit.accelerate(tiny_wan.pipe, on_report=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_hooks_around_a_compiled_block_are_taken_out_in_any_order(tiny_wan: Any, order: tuple[int, int]) -> None:
    block = tiny_wan.pipe.transformer.blocks[0]
    block.compile(backend="eager")
    compiled = block._compiled_call_impl
    reads = GalaxyDiTConfig(galaxydit.Threshold(0.5), proxy="block_residual")
    with galaxydit.accelerate(tiny_wan.pipe, config=reads) as acceleration:
        with acceleration.using(config=reads):
            tiny_wan.run(num_inference_steps=9)
            assert block._compiled_call_impl is not compiled
            if order == (0, 1):
                acceleration.set(quality="lossless")
        tiny_wan.run(num_inference_steps=9)
    assert block._compiled_call_impl is compiled


def test_on_report_may_fail_or_change_the_settings(tiny_wan: Any) -> None:
    seen: list[Report] = []

    def on_report(report: Report) -> None:
        seen.append(report)
        acceleration.set(speedup=2.0)
        raise ConnectionError("away")

    with galaxydit.accelerate(tiny_wan.pipe, on_report=on_report) as acceleration:
        with pytest.warns(UserWarning, match="on_report raised ConnectionError"):
            first = tiny_wan.run()
        with pytest.raises(RuntimeError, match="stopped"):
            tiny_wan.run(callback_on_step_end=fail)
        assert torch.equal(tiny_wan.run(), first)
        with pytest.raises(RuntimeError, match="stopped"), acceleration.using(quality="fast"):
            tiny_wan.run(callback_on_step_end=fail)
        assert acceleration._attachments._others == []
        assert len(seen) == len(acceleration.reports) == 4


def test_on_report_is_called_while_no_lock_is_held(tiny_wan: Any) -> None:
    left = threading.Event()

    def other() -> None:
        with acceleration.using(quality="fast"):
            pass
        left.set()

    def on_report(report: Report) -> None:
        threading.Thread(target=other, daemon=True).start()
        assert left.wait(5)
        acceleration.set(speedup=2.0)

    with galaxydit.accelerate(tiny_wan.pipe, on_report=on_report) as acceleration, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        tiny_wan.run()


def test_a_block_that_is_left_in_another_context_ends(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:

        def stream() -> Any:
            with acceleration.using(quality="fast"):
                yield tiny_wan.run()

        videos = stream()
        contextvars.copy_context().run(next, videos)
        videos.close()
        assert acceleration._attachments._others == []


def by_hand(transformer: Any, scheduler: Any, steps: Any, latent: Tensor) -> Iterator[Tensor]:
    """Steps of a loop of one's own; yields the latent after each."""
    text = torch.full((1, 8, transformer.config.text_dim), 0.5)
    scheduler.set_timesteps(20)
    for step in steps:
        timestep, sigma = scheduler.timesteps[step], float(scheduler.sigmas[step])
        context = {"step_index": step, "num_inference_steps": 20, "sigma": sigma, "timestep": timestep}
        with torch.no_grad(), transformer.cache_context("cond", **context):
            output = transformer(latent, timestep.expand(1), text, return_dict=False)[0]
        latent = scheduler.step(output, timestep, latent, return_dict=False)[0]
        yield latent


def test_settings_of_a_loop_that_was_left_or_of_another_task_do_not_serve_the_next_one(tiny_wan: Any) -> None:
    transformer, scheduler = tiny_wan.pipe.transformer, FlowMatchEulerDiscreteScheduler(shift=5.0)
    scheduler.set_timesteps(20)
    noise = torch.randn(1, transformer.config.in_channels, 2, 4, 4)
    loop = partial(by_hand, transformer, scheduler)
    (*_, plain) = loop(range(20), noise)
    second = FlowMatchEulerDiscreteScheduler(shift=5.0)
    loops = {"fast": loop, "lossless": partial(by_hand, transformer, second)}
    with galaxydit.accelerate(transformer, speedup=3.0, scheduler=scheduler, schedulers=[second]) as acceleration:
        (*_, fast) = loop(range(20), noise)
        assert not torch.equal(fast, plain)

        async def serve(quality: str) -> Tensor:
            with acceleration.using(quality=quality):
                latents = []
                for latent in loops[quality](range(20), noise):
                    latents.append(latent)
                    await asyncio.sleep(0)
                return latents[-1]

        async def serve_both() -> list[Tensor]:
            return await asyncio.gather(serve("fast"), serve("lossless"))

        assert torch.equal(asyncio.run(serve_both())[1], plain)
        (*_, _) = loop(range(8), noise)
        with acceleration.using(quality="lossless"):
            (*_, latent) = loop(range(20), noise)
        assert torch.equal(latent, plain)
        (*_, _) = loop(range(8), noise)
        acceleration.set(quality="lossless")
        (*_, latent) = loop(range(20), noise)
        assert torch.equal(latent, plain)


def test_a_preview_in_a_callback_has_the_settings_of_its_block(tiny_wan: Any) -> None:
    other = WanPipeline(**(tiny_wan.pipe.components | {"scheduler": deepcopy(tiny_wan.pipe.scheduler)}))
    preview = partial(type(tiny_wan)(other, tiny_wan.arguments).run, num_inference_steps=12)
    plain, shown = preview(), []
    with galaxydit.accelerate(tiny_wan.pipe, speedup=3.0, schedulers=[other.scheduler]) as acceleration:

        def show(pipe: Any, step: int, *_: Any) -> dict[str, Any]:
            if step == 6:
                with acceleration.using(quality="lossless") as request:
                    shown.append(preview())
                assert "plain one" in str(request.report)
            return {}

        tiny_wan.run(num_inference_steps=12, callback_on_step_end=show)
    assert torch.equal(shown[0], plain)


@pytest.mark.parametrize(("name", "stop"), [("CogVideoX DDIM", None), ("LTX", None), ("LTX", 9), ("HunyuanVideo", 9)])
def test_a_latent_that_a_callback_replaces_is_told(tiny_pipeline: Any, name: str, stop: int | None) -> None:
    """In a step that was reused already, also by a scheduler that may draw noise, and if the video is interrupted."""

    def replace(pipe: Any, step: int, _: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        pipe._interrupt = step == stop
        return {"latents": -tensors["latents"]} if step == 6 else {}

    tiny = tiny_pipeline(name)
    with galaxydit.accelerate(tiny.pipe, speedup=2.0) as acceleration:
        tiny.run(num_inference_steps=14, callback_on_step_end=replace)
        acceleration._session.close()
    assert any("does not continue" in note for note in acceleration.report.notes)


def test_the_guidance_of_a_pipelines_last_video_says_nothing_of_another_pipelines(tiny_pipeline: Any) -> None:
    tiny = tiny_pipeline("CogVideoX DDIM")
    other = type(tiny)(type(tiny.pipe)(**tiny.pipe.components), tiny.arguments)
    with galaxydit.accelerate(tiny.pipe, threshold=0.25, proxy="block_residual") as acceleration:
        tiny.run(guidance_scale=1.0, num_inference_steps=20)
        other.run(guidance_scale=6.0, num_inference_steps=20)
    assert {call.sample for call in acceleration.report.calls} == {0}
