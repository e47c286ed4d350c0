"""Under torch.compile the model's blocks are compiled and nothing of the plugin is."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from diffusers import WanPipeline, WanTransformer3DModel
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError, Threshold
from galaxydit.eval.latency.timed_methods import ForcedScheduler

STEPS = 12
REUSING = {"policy": Threshold(1e-3), "warmup": 0.2, "max_consecutive": 1}


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


SCHEDULER = ForcedScheduler()  # drives the transformer; without it full steps would correct nothing


def trajectory(transformer: WanTransformer3DModel) -> Tensor:
    """The sum of all outputs of a small trajectory; every other step repeats the input of the step before."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(STEPS, 1, 16, 2, 4, 4, generator=generator)
    latents = noise[0] + 0.02 * noise
    text = torch.randn(2, 1, 8, 128, generator=generator).unbind()  # one tensor for all steps, as pipelines pass it
    total = torch.zeros(1)
    SCHEDULER.set_timesteps(STEPS)
    sigmas = SCHEDULER.sigmas.tolist()
    with torch.no_grad():
        for step in range(STEPS):
            for branch, words in zip(("cond", "uncond"), text, strict=True):
                context = {"step_index": step, "num_inference_steps": STEPS, "sigma": sigmas[step]}
                with transformer.cache_context(branch, **context):
                    output = transformer(latents[step // 2], torch.tensor([900]), words).sample
                total = total + output
            SCHEDULER.next_latent = latents[(step + 1) // 2]
            SCHEDULER.step(output, torch.tensor(900), latents[step // 2])
    return total


class Graphs:
    """A backend that compiles nothing and keeps the names of the operations in each graph it is handed."""

    def __init__(self) -> None:
        self.found: list[set[str]] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.found.append({str(node.target) for node in module.graph.nodes if node.op.startswith("call")})
        return module.forward


@pytest.mark.matrix(proxy=["block_residual", "noisy_latent"], reuse=["output", "residual"], compile_first=[True, False])
def test_only_the_block_is_compiled_and_the_result_is_the_same(
    tiny_transformer: Callable[[int], WanTransformer3DModel], proxy: str, reuse: str, compile_first: bool
) -> None:
    transformer = tiny_transformer(3)
    config = GalaxyDiTConfig(proxy=proxy, reuse=reuse, **REUSING)
    with galaxydit.accelerate(transformer, config=config, scheduler=SCHEDULER) as acceleration:
        expected = trajectory(transformer)
        decisions = [call.reused for call in acceleration.report.calls]
    assert any(decisions)
    graphs = Graphs()
    if compile_first:
        transformer.compile_repeated_blocks(backend=graphs)
        acceleration = galaxydit.accelerate(transformer, config=config, scheduler=SCHEDULER)
    else:
        acceleration = galaxydit.accelerate(transformer, config=config, scheduler=SCHEDULER)
        transformer.compile_repeated_blocks(backend=graphs)
    result = trajectory(transformer)
    assert len(graphs.found) == 1, "one graph, the block, whatever the number of blocks, steps and branches"
    assert any("attention" in name for name in graphs.found[0])
    assert torch.allclose(result, expected, atol=1e-5)
    assert [call.reused for call in acceleration.report.calls] == decisions


@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_compiled_first_the_block_stays_a_full_graph_and_is_left_as_it_was(
    tiny_transformer: Callable[[int], WanTransformer3DModel], reuse: str
) -> None:
    transformer = tiny_transformer(3)
    plain = trajectory(transformer)
    graphs = Graphs()
    transformer.compile_repeated_blocks(backend=graphs, fullgraph=True)
    before = [block._compiled_call_impl for block in transformer.blocks]
    with galaxydit.accelerate(
        transformer, config=GalaxyDiTConfig(reuse=reuse, **REUSING), scheduler=SCHEDULER
    ) as acceleration:
        trajectory(transformer)
    assert acceleration.report.reused_steps == 4
    assert len(graphs.found) == 1
    assert [block._compiled_call_impl for block in transformer.blocks] == before
    assert torch.allclose(trajectory(transformer), plain, atol=1e-5)


def test_blocks_compiled_anew_while_attached_are_left_alone_on_removal(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    transformer = tiny_transformer(3)
    transformer.compile_repeated_blocks(backend=Graphs())
    acceleration = galaxydit.accelerate(transformer, config=GalaxyDiTConfig(**REUSING), scheduler=SCHEDULER)
    transformer.compile_repeated_blocks(backend=Graphs())
    anew = [block._compiled_call_impl for block in transformer.blocks]
    acceleration.remove()
    assert [block._compiled_call_impl for block in transformer.blocks] == anew


def test_export_of_an_accelerated_transformer_names_the_cure(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    transformer = tiny_transformer(2)
    inputs = torch.randn(1, 16, 2, 4, 4), torch.tensor([500]), torch.randn(1, 8, 128)
    with (
        galaxydit.accelerate(transformer, config=GalaxyDiTConfig(**REUSING)),
        pytest.raises(GalaxyDiTError, match=r"cannot be exported; call remove\(\)"),
    ):
        torch.export.export(transformer, inputs, {"return_dict": False}, strict=False)
    torch.export.export(transformer, inputs, {"return_dict": False}, strict=False)


def test_a_wholly_compiled_transformer_keeps_its_decisions(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    transformer = tiny_transformer(3)
    config = GalaxyDiTConfig(**REUSING)
    with galaxydit.accelerate(transformer, config=config, scheduler=SCHEDULER) as acceleration:
        expected = trajectory(transformer)
        decisions = [call.reused for call in acceleration.report.calls]
    graphs = Graphs()
    transformer.compile(backend=graphs)
    with galaxydit.accelerate(transformer, config=config, scheduler=SCHEDULER) as acceleration:
        assert torch.allclose(trajectory(transformer), expected, atol=1e-5)
    assert [call.reused for call in acceleration.report.calls] == decisions
    assert graphs.found


def test_a_compiled_wrapper_around_the_transformer_is_accelerated(tiny_wan: Any) -> None:
    """`pipe.transformer = torch.compile(pipe.transformer)`, before or after the plugin."""
    pipe, config = tiny_wan.pipe, GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
    transformer = pipe.transformer
    with galaxydit.accelerate(pipe, config=config) as acceleration:
        expected = tiny_wan.run()
        decisions = [call.reused for call in acceleration.report.calls]
    for first in ("compile", "accelerate"):
        pipe.transformer = torch.compile(transformer, backend=Graphs()) if first == "compile" else transformer
        with galaxydit.accelerate(pipe, config=config) as acceleration:
            if first == "accelerate":
                pipe.transformer = torch.compile(transformer, backend=Graphs())
            assert torch.allclose(tiny_wan.run(), expected, atol=1e-5)
        assert [call.reused for call in acceleration.report.calls] == decisions
    pipe.transformer = transformer


@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_other_decisions_compile_nothing_anew(
    tiny_transformer: Callable[[int], WanTransformer3DModel], reuse: str
) -> None:
    """Later generations decide otherwise, some with other proxies and policies: the blocks keep their one graph."""
    transformer = tiny_transformer(3)
    graphs = Graphs()
    transformer.compile_repeated_blocks(backend=graphs, fullgraph=True)
    settings: list[dict[str, Any]] = [
        {"config": GalaxyDiTConfig(reuse=reuse, **REUSING)},
        {"config": GalaxyDiTConfig(FixedSteps((0, 1, 2, 9)), reuse=reuse)},
        {"config": GalaxyDiTConfig(Threshold(0.3), proxy="noisy_latent", reuse=reuse)},
        {"speedup": 2.0},
    ]
    decisions = set()
    for setting in settings:
        with galaxydit.accelerate(transformer, **setting) as acceleration:
            for _ in range(2):
                trajectory(transformer)
                decisions.add(tuple(call.reused for call in acceleration.report.calls))
    assert len(decisions) > 2
    assert len(graphs.found) == 1


def test_output_reuse_does_not_keep_the_stacks_input_alive(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    """At 75,600 tokens x 5,120 in bfloat16 it is 774 MB, held through all blocks."""
    transformer = tiny_transformer(3)
    seen: list[weakref.ref[Tensor]] = []
    alive: list[bool] = []
    transformer.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(weakref.ref(args[0])))
    transformer.blocks[2].register_forward_pre_hook(lambda _, args: alive.append(seen[-1]() is not None))
    for reuse, expected in (("output", False), ("residual", True)):
        alive.clear()
        with galaxydit.accelerate(transformer, config=GalaxyDiTConfig(Threshold(0.1), reuse=reuse)):
            trajectory(transformer)
        assert set(alive) == {expected}, reuse


def test_a_decode_compiled_as_one_full_graph_still_decodes(tiny_wan_pipeline: WanPipeline) -> None:
    vae = tiny_wan_pipeline.vae
    vae.decode = torch.compile(vae.decode, fullgraph=True, backend="eager")
    arguments = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 10, "output_type": "np"}
    with galaxydit.accelerate(tiny_wan_pipeline) as acceleration:
        video = tiny_wan_pipeline("a red ball", **arguments).frames
    assert video.shape == (1, 5, 32, 32, 3)
    assert acceleration.report.reused_steps == 5
    assert acceleration.report.end_to_end_seconds is None
