"""Two CPU ranks that share a video's tokens, or the weights: one decision for all."""

import datetime
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import ContextParallelConfig, FlowMatchEulerDiscreteScheduler, WanTransformer3DModel
from diffusers.models import attention_dispatch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Online, Threshold
from galaxydit.context_parallel import token_group

RANKS = 2
OFTEN = GalaxyDiTConfig(Threshold(0.5), max_consecutive=2)
SETTINGS: dict[str, dict[str, Any]] = {
    "noisy latent": {"config": replace(OFTEN, proxy="noisy_latent")},
    "block input": {"config": replace(OFTEN, proxy="block_input")},
    "block residual": {"config": OFTEN},
    "part of a block": {"config": replace(OFTEN, proxy="self_attention")},
    "residual": {"config": replace(OFTEN, reuse="residual")},
    "residual, part of a block": {"config": replace(OFTEN, reuse="residual", proxy="cross_attention")},
    "speedup": {"speedup": 2.0},
    "two samples": {"config": replace(OFTEN, policy=Threshold(0.1)), "samples": 2},
    "two samples, learned errors": {"config": replace(OFTEN, policy=Online(max_error=0.3)), "samples": 2},
}
ORDERS = ("split first", "attach first")
Result = tuple[list[bool], list[float | None], Tensor]


def denoise(
    transformer: WanTransformer3DModel, settings: dict[str, Any], attach: Callable[[], None], seed: int = 0
) -> Result:
    """Decisions, distances and latents of a small generation with two branches."""
    scheduler = FlowMatchEulerDiscreteScheduler(shift=5.0)
    scheduler.set_timesteps(12)
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(1, 16, 2, 4, 4, generator=generator)
    texts = list(torch.randn(2, 1, 8, 128, generator=generator))
    settings = dict(settings)
    if settings.pop("samples", 1) == 2:
        latents = torch.cat([latents, 2.0 * torch.randn(1, 16, 2, 4, 4, generator=generator)])
        texts = [text.repeat(2, 1, 1) for text in texts]
    settings = {"scheduler": scheduler} | settings
    with galaxydit.accelerate(transformer, **settings) as acceleration, torch.no_grad():
        attach()
        for timestep in scheduler.timesteps:
            words = [transformer(latents, timestep.expand(len(latents)), text, return_dict=False)[0] for text in texts]
            guided = words[1] + 3.0 * (words[0] - words[1])
            latents = scheduler.step(guided, timestep, latents, return_dict=False)[0]
    if not acceleration.reports:
        return [], [], latents
    calls = acceleration.report.calls
    return [call.reused for call in calls], [call.distance for call in calls], latents


def attend(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """Attention `(batch, tokens, heads, dim)` with its log-sum-exp, which diffusers' ring has on GPUs alone."""
    scores = torch.einsum("bqhd,bkhd->bqhk", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("bqhk,bkhd->bqhd", scores.softmax(-1), value), scores.logsumexp(-1)


def split(transformer: WanTransformer3DModel, exchange: str) -> None:
    """Share the tokens among the ranks."""
    transformer.set_attention_backend("native")
    degree = {"Ulysses": "ulysses_degree", "ring": "ring_degree"}[exchange]
    transformer.enable_parallelism(config=ContextParallelConfig(**{degree: RANKS}))


def work(rank: int, folder: Path, build: Callable[[int], WanTransformer3DModel], exchange: str) -> None:
    """One rank: every setting, with the tokens split before or after the plugin is attached."""
    torch.set_num_threads(1)
    torch.accelerator.device_count = lambda: RANKS  # type: ignore[method-assign,assignment]
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=RANKS)
    if exchange == "ring":
        attention_dispatch._native_attention_forward_op = attend
    results: dict[tuple[str, str], Result] = {}
    for name in EXCHANGED[exchange]:
        settings = SETTINGS[name]
        for order in orders_of(name):
            torch.manual_seed(0)
            transformer = build(3)
            share = partial(split, transformer, exchange)
            if order == "split first":
                share()
            results[name, order] = denoise(transformer, settings, share if order == "attach first" else lambda: None)
    torch.save(results, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


def orders_of(name: str) -> tuple[str, ...]:
    """Orders of splitting and attaching that a setting is tried in: both for the default, else they take turns."""
    return ORDERS if name == "block residual" else (ORDERS[[*SETTINGS].index(name) % 2],)


def on_two_ranks(target: Callable[..., None], folder: Path, *arguments: Any) -> list[Any]:
    """What each rank saved."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=target, args=(rank, folder, *arguments)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        process.kill()
    assert [process.exitcode for process in ranks] == [0] * RANKS
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(RANKS)]


RESIDUAL = GalaxyDiTConfig(FixedSteps((0, 1, 2, 5, 8, 11)), reuse="residual")
SHARDED: dict[str, list[dict[str, Any]]] = {
    "latent": [{"config": replace(OFTEN, policy=Threshold(0.2), proxy="noisy_latent")}],
    "part of a block": [{"config": replace(OFTEN, policy=Threshold(0.1), proxy="self_attention")}],
    "residual": [{"config": replace(OFTEN, policy=Threshold(0.2), reuse="residual")}],
    "learned errors": [{"config": GalaxyDiTConfig(Online(max_error=0.3), proxy="noisy_latent")}],
    "branches apart": [{"config": replace(OFTEN, policy=Threshold(0.2), guidance_alignment=False)}],
    "two samples": [{"config": replace(OFTEN, policy=Threshold(0.1)), "samples": 2}],
    "schedule": [{"speedup": 2.0}],
    "one corrects": [{"config": RESIDUAL}, {"config": replace(RESIDUAL, correction=False)}],
    "another plan": [{"config": RESIDUAL}, {"config": replace(RESIDUAL, policy=FixedSteps((0, 1, 2, 6, 9)))}],
    "schedule and proxy": [{"speedup": 2.0}, {"config": OFTEN}],
    "one step unknown": [{"config": OFTEN}, {"config": OFTEN, "scheduler": None}],
}
"""Settings of the first rank, and of the second where it has others."""
EXCHANGED = {
    "Ulysses": tuple(SETTINGS),
    "ring": ("block residual", "residual, part of a block", "two samples"),  # how tokens are exchanged is no decision
}
"""Names of the settings that are tested, by exchange of tokens."""


def work_sharded(rank: int, folder: Path, build: Callable[[int], WanTransformer3DModel]) -> None:
    """One rank with half of the weights and a video of its own."""
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=30)
    meeting = f"file://{folder / 'rendezvous'}"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=limit)
    mesh, decisions = init_device_mesh("cpu", (RANKS,)), {}
    for name, settings in SHARDED.items():
        torch.manual_seed(0)
        transformer = build(3)
        for block in transformer.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(transformer, mesh=mesh)
        decisions[name] = denoise(transformer, settings[min(rank, len(settings) - 1)], lambda: None, seed=rank)[0]
    torch.save(decisions, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_ranks_that_share_the_weights_run_a_block_on_all_or_on_none(
    tmp_path: Path, tiny_transformer: Callable[[int], WanTransformer3DModel]
) -> None:
    first, second = on_two_ranks(work_sharded, tmp_path, tiny_transformer)
    assert not any(first.pop("one step unknown")), "the other computes, so this one does"
    assert second.pop("one step unknown") == []
    assert first == second
    shares = {name: sum(decisions) / len(decisions) for name, decisions in first.items()}
    assert shares.pop("schedule and proxy") == 0, "one decides before the forward pass, the other in it"
    assert min(shares.values()) > 0, shares


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("exchange", ["Ulysses", "ring"])
def test_two_ranks_decide_as_one_process_does(
    tmp_path: Path, tiny_transformer: Callable[[int], WanTransformer3DModel], exchange: str
) -> None:
    first, second = on_two_ranks(work, tmp_path, tiny_transformer, exchange)
    assert {order for _, order in first} == {*ORDERS}
    for name in EXCHANGED[exchange]:
        settings = SETTINGS[name]
        torch.manual_seed(0)
        decisions, distances, latents = denoise(tiny_transformer(3), settings, lambda: None)
        assert 0 < sum(decisions) < 0.75 * len(decisions), "the threshold must have a say"
        if "samples" in settings:
            assert decisions[::2] != decisions[1::2], "one sample is computed while the other is reused"
        for order in orders_of(name):
            found = first[name, order]
            assert found[:2] == second[name, order][:2], "not close: equal, or a rank may decide otherwise"
            assert torch.equal(found[2], second[name, order][2])
            assert found[0] == decisions
            assert found[1] == [None if known is None else pytest.approx(known, rel=1e-4) for known in distances]
            assert torch.allclose(found[2], latents, atol=1e-4)


def test_only_the_ranks_that_share_a_video_are_asked() -> None:
    """Other ranks may be at another video: waiting for them could take forever."""
    mesh = SimpleNamespace(get_group=lambda: "those two")
    transformer = nn.Linear(1, 1)
    assert token_group(transformer) is None
    transformer._parallel_config = SimpleNamespace(context_parallel_config=None)
    assert token_group(transformer) is None
    transformer._parallel_config = SimpleNamespace(context_parallel_config=SimpleNamespace(_flattened_mesh=mesh))
    assert token_group(transformer) == "those two"
