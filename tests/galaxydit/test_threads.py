"""Settings and hooks change from any thread while videos are made. GENERATIONS=300 runs the long form."""

import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError
from galaxydit.runtime import running_calls

GENERATIONS = int(os.environ.get("GENERATIONS", "5"))  # as many as there are requests
RESIDUAL = GalaxyDiTConfig(FixedSteps((0, 1, 5)), reuse="residual")  # hooks on every block
REQUESTS: tuple[dict[str, Any], ...] = (
    {"speedup": 3.0},
    {"quality": "lossless"},
    {"threshold": 0.5, "proxy": "block_residual"},
    {"max_error": 0.5, "proxy": "modulated_input"},
    {"config": RESIDUAL},
)


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    sys.setswitchinterval(before)


@pytest.fixture
def wan(tiny_wan: Any) -> Any:
    """The tiny pipeline with its texts encoded, so that a video takes milliseconds."""
    text, negative = tiny_wan.pipe.encode_prompt("a red ball", "", True, 1, max_sequence_length=16)
    tiny_wan.arguments |= {"prompt": None, "prompt_embeds": text, "negative_prompt_embeds": negative}
    return tiny_wan


def forwards_of(transformer: nn.Module) -> dict[str, Any]:
    return {path: vars(module).get("forward") for path, module in transformer.named_modules()}


def within_a_call(transformer: Any, do: Callable[[], None]) -> Any:
    """Do something once, in the forward pass of the last block; returns the handle of a hook."""
    did: list[int] = []

    def hook(*_: Any) -> None:
        if not did:
            did.append(1)
            do()

    return transformer.blocks[-1].register_forward_pre_hook(hook)


def test_videos_are_made_beside_changes_of_another_thread(wan: Any) -> None:
    ended, changes = threading.Event(), 0

    def change() -> int:
        made, choice = 0, random.Random(0)
        acceleration = galaxydit.accelerate(wan.pipe)
        while not ended.is_set():
            request, kind = choice.choice(REQUESTS), choice.randrange(8)
            if kind == 0:
                acceleration.remove()
                acceleration = galaxydit.accelerate(wan.pipe, **request)
            elif kind < 4:
                acceleration.set(**request)
            else:
                with acceleration.using(**request):
                    pass
            made += 1
        acceleration.remove()
        return made

    plain, forwards = wan.run(), forwards_of(wan.pipe.transformer)
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            for _ in range(GENERATIONS):
                assert wan.run().isfinite().all()
        finally:
            ended.set()
        changes = changing.result()
    assert changes > 10 * GENERATIONS
    assert torch.equal(wan.run(), plain)
    assert forwards_of(wan.pipe.transformer) == forwards


def test_a_block_a_thread_may_be_left_outside_the_lock_around_the_call(wan: Any) -> None:
    turn, expected = threading.Lock(), []
    for request in REQUESTS:
        with galaxydit.accelerate(wan.pipe, **request):
            expected.append(wan.run())
    with galaxydit.accelerate(wan.pipe, keep_reports=None) as acceleration:

        def serve(index: int) -> None:
            for number in range(GENERATIONS):
                kind = (index + number) % len(REQUESTS)
                with acceleration.using(**REQUESTS[kind]) as request:
                    with turn:
                        latents = wan.run()
                    assert [report.config for report in request.reports] == [request.config]
                assert torch.equal(latents, expected[kind])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(serve, range(4)))
        assert len(acceleration.reports) == 4 * GENERATIONS
        assert acceleration._attachments._others == []


def test_a_thread_that_walks_through_the_hooks_meanwhile_finds_each(wan: Any) -> None:
    """As diffusers does in `cache_context`, which takes no lock."""
    acceleration = galaxydit.accelerate(wan.pipe, config=RESIDUAL)
    wan.run()
    registries = [one._diffusers_hook for one in wan.pipe.transformer.modules() if hasattr(one, "_diffusers_hook")]
    names = [(registry, name) for registry in registries for name in reversed(registry._hook_order)]
    assert names
    walks = [iter(vars(registry.hooks[name]).values()) for registry, name in names]
    walks += [iter(registry.hooks.values()) for registry in registries]
    for walk in walks:
        next(walk, None)
    with acceleration.using(config=GalaxyDiTConfig(FixedSteps((0, 1)), reuse="residual")):
        wan.run()
    acceleration.set(quality="lossless")
    acceleration.remove()
    assert all(registry.hooks[name] is not None for registry, name in names)
    for walk in walks:
        list(walk)


def set_other(acceleration: galaxydit.Acceleration) -> None:
    acceleration.set(quality="lossless")


def open_and_leave(acceleration: galaxydit.Acceleration) -> None:
    with acceleration.using(quality="lossless"):
        pass


@pytest.mark.parametrize("change", [set_other, open_and_leave, galaxydit.Acceleration.remove])
def test_hooks_are_taken_off_when_the_call_under_way_has_ended(wan: Any, change: Callable[..., None]) -> None:
    transformer, before = wan.pipe.transformer, forwards_of(wan.pipe.transformer)
    with galaxydit.accelerate(wan.pipe, config=RESIDUAL) as acceleration:
        expected = wan.run()
        other = threading.Thread(target=change, args=[acceleration], daemon=True)

        def change_elsewhere() -> None:
            hooked = forwards_of(transformer)
            other.start()
            other.join(0.2 if change is galaxydit.Acceleration.remove else 20)
            assert forwards_of(transformer) == hooked
            assert other.is_alive() == (change is galaxydit.Acceleration.remove)

        handle = within_a_call(transformer, change_elsewhere)
        latents = wan.run()
        handle.remove()
        other.join(20)
        assert not other.is_alive()
        # A generation keeps its settings, unless all is removed.
        assert torch.equal(latents, expected) == (change is not galaxydit.Acceleration.remove)
        if change is galaxydit.Acceleration.remove:
            assert forwards_of(transformer) == before
        else:
            wan.run()
            assert len(acceleration.reports) == 3
    assert forwards_of(transformer) == before


def test_hooks_of_a_block_that_is_left_stay_until_the_call_of_another_thread_ends(wan: Any) -> None:
    transformer, leave = wan.pipe.transformer, threading.Event()
    with galaxydit.accelerate(wan.pipe, quality="lossless") as acceleration:
        wan.run()
        hooked = forwards_of(transformer)
        turn = threading.Barrier(2)

        def serve() -> None:
            with acceleration.using(config=RESIDUAL):
                wan.run()
                turn.wait(20)
                leave.wait(20)

        other = threading.Thread(target=serve, daemon=True)
        other.start()
        turn.wait(20)

        def let_it_leave() -> None:
            placed = forwards_of(transformer)
            assert placed != hooked
            leave.set()
            other.join(20)
            assert not other.is_alive()
            assert forwards_of(transformer) == placed

        within_a_call(transformer, let_it_leave)
        wan.run()
        assert forwards_of(transformer) == hooked
        assert len(acceleration.reports) == 3


@pytest.mark.parametrize("place", ["call", "callback"])
def test_a_video_may_remove_the_plugin_within_a_call_or_a_callback(wan: Any, place: str) -> None:
    transformer, before = wan.pipe.transformer, forwards_of(wan.pipe.transformer)
    told: list[galaxydit.Report] = []
    acceleration = galaxydit.accelerate(wan.pipe, config=RESIDUAL, on_report=told.append)

    def remove(*_: Any) -> dict[str, Any]:
        acceleration.remove()
        acceleration.remove()
        with pytest.raises(GalaxyDiTError, match="was removed"):
            acceleration.set()
        return {}

    if place == "call":
        within_a_call(transformer, remove)
        latents = wan.run()
    else:
        latents = wan.run(callback_on_step_end=remove)
    assert latents.isfinite().all()
    assert forwards_of(transformer) == before
    assert len(acceleration.reports) == len(told) == 1


def test_a_call_that_waits_for_a_removal_ends(wan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_calls, "LONGEST_WAIT", 0.1)
    before = forwards_of(wan.pipe.transformer)
    acceleration = galaxydit.accelerate(wan.pipe, config=RESIDUAL)

    def remove_elsewhere() -> None:
        other = threading.Thread(target=acceleration.remove, daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()

    within_a_call(wan.pipe.transformer, remove_elsewhere)
    assert wan.run().isfinite().all()
    assert forwards_of(wan.pipe.transformer) == before


def test_an_error_in_a_call_keeps_no_change_waiting(wan: Any) -> None:
    before = forwards_of(wan.pipe.transformer)
    acceleration = galaxydit.accelerate(wan.pipe, config=RESIDUAL)

    def fail() -> None:
        raise InterruptedError

    within_a_call(wan.pipe.transformer, fail)
    with pytest.raises(InterruptedError):
        wan.run()
    other = threading.Thread(target=acceleration.remove, daemon=True)
    other.start()
    other.join(20)
    assert not other.is_alive()
    assert forwards_of(wan.pipe.transformer) == before


def test_calls_that_overlap_all_the_time_do_not_keep_changes_away(wan: Any) -> None:
    """Each of two threads begins its next call before the other's call has ended."""
    transformer, before = wan.pipe.transformer, forwards_of(wan.pipe.transformer)
    latents = torch.randn(1, transformer.config.in_channels, 2, 4, 4)
    text = torch.randn(1, 8, transformer.config.text_dim)
    ended = threading.Event()

    @torch.no_grad()
    def call() -> Tensor:
        output = latents
        while not ended.is_set():
            output = transformer(latents, torch.tensor([500.0]), text, return_dict=False)[0]
        return output

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            for request in REQUESTS * 3:
                with galaxydit.accelerate(transformer, config=RESIDUAL) as acceleration:
                    acceleration.set(**request)
        finally:
            ended.set()
        assert all(torch.equal(one.result(), calls[0].result()) for one in calls)
    assert forwards_of(transformer) == before
