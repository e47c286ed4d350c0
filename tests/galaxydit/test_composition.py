"""Other tools on the same modules: offloading, casting, adapters, copies. All work beside the plugin, in any order."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from diffusers import WanPipeline
from diffusers.hooks import HookRegistry, ModelHook
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, FullComputeWarning, GalaxyDiTConfig, GalaxyDiTError, Threshold
from tests.galaxydit.conftest import WAN_ARGUMENTS, TinyPipeline

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(12))))
CONFIGS = {
    "output": replace(OFTEN, proxy="cross_attention"),
    "residual": replace(OFTEN, reuse="residual"),
}


def group_offload(pipe: WanPipeline, **settings: Any) -> None:
    pipe.transformer.enable_group_offload(onload_device=torch.device("cpu"), **settings)


OFFLOADS: dict[str, Callable[[WanPipeline], None]] = {
    "model": lambda pipe: pipe.enable_model_cpu_offload(device="cpu"),
    "sequential": lambda pipe: accelerate.cpu_offload(pipe.transformer, torch.device("cpu")),
    "group of blocks": lambda pipe: group_offload(pipe, offload_type="block_level", num_blocks_per_group=2),
    "group of leaves": lambda pipe: group_offload(pipe, offload_type="leaf_level"),
}


@pytest.fixture(scope="module")
def undisturbed(tiny_wan_builder: Callable[[], WanPipeline]) -> Callable[[str | None], tuple[Tensor, list[bool]]]:
    """Latents and decisions of a pipeline under this configuration, or plain, without any other tool."""

    @cache
    def latents_of(name: str | None) -> tuple[Tensor, list[bool]]:
        tiny = TinyPipeline(tiny_wan_builder(), WAN_ARGUMENTS)
        if name is None:
            return tiny.run(), []
        with galaxydit.accelerate(tiny.pipe, config=CONFIGS[name]) as acceleration:
            latents = tiny.run()
        return latents, [call.reused for call in acceleration.report.calls]

    return latents_of


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> GalaxyDiTConfig:
    return CONFIGS[request.param]


def forwards_of(pipe: WanPipeline) -> dict[str, Any]:
    return {path: module.__dict__.get("forward") for path, module in pipe.transformer.named_modules()}


@pytest.mark.matrix(offload=OFFLOADS, order=["offload first", "accelerate first"], name=CONFIGS)
def test_offloading_changes_neither_results_nor_decisions(
    tiny_wan: Any, undisturbed: Callable[[str | None], Any], offload: str, order: str, name: str
) -> None:
    """Two generations: model offloading takes its hooks off and puts new ones on after each."""
    pipe = tiny_wan.pipe
    plain, _ = undisturbed(None)
    latents, reused = undisturbed(name)
    if order == "offload first":
        OFFLOADS[offload](pipe)
    acceleration = galaxydit.accelerate(pipe, config=CONFIGS[name])
    if order == "accelerate first":
        OFFLOADS[offload](pipe)
    for _ in range(2):
        assert torch.equal(tiny_wan.run(), latents)
    assert [[call.reused for call in report.calls] for report in acceleration.reports] == [reused] * 2
    acceleration.remove()
    for _ in range(2):
        assert torch.equal(tiny_wan.run(), plain)
    assert len(acceleration.reports) == 2, "removed is removed, also when offloading puts old forwards back"
    assert (pipe.transformer._diffusers_hook._hook_order != []) == offload.startswith("group")
    pipe.remove_all_hooks()
    assert torch.equal(tiny_wan.run(), plain)


def test_offloading_that_ends_before_the_plugin_leaves_it_working(tiny_wan: Any, config: GalaxyDiTConfig) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=config):
        latents = tiny_wan.run()
    tiny_wan.pipe.enable_model_cpu_offload(device="cpu")
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        tiny_wan.pipe.remove_all_hooks()
        assert torch.equal(tiny_wan.run(), latents)
    assert acceleration.report.reused_steps > 0


@pytest.mark.parametrize("order", ["cast first", "accelerate first"])
def test_layerwise_casting_works_in_either_order(tiny_wan: Any, order: str, config: GalaxyDiTConfig) -> None:
    pipe = tiny_wan.pipe

    def cast() -> None:
        pipe.transformer.enable_layerwise_casting(storage_dtype=torch.bfloat16, compute_dtype=torch.float32)

    if order == "cast first":
        cast()
    acceleration = galaxydit.accelerate(pipe, config=config)
    if order == "accelerate first":
        cast()
    latents = tiny_wan.run()
    assert torch.equal(tiny_wan.run(), latents)
    acceleration.remove()
    plain = tiny_wan.run()
    weight = pipe.transformer.blocks[0].attn1.to_q.weight
    assert weight.dtype == torch.bfloat16, "the cast is still there"
    with galaxydit.accelerate(pipe, config=config):
        assert torch.equal(tiny_wan.run(), latents)
    with galaxydit.accelerate(pipe, config=replace(NEVER, reuse=config.reuse)):
        assert torch.equal(tiny_wan.run(), plain)
    assert [report.reused_steps for report in acceleration.reports] == [6, 6]


class Doubling(ModelHook):
    """A hook of someone else's that shows in the result."""

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        return output * 2


class DoublingForward(ModelHook):
    """The same, with a forward of its own."""

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.fn_ref.original_forward(*args, **kwargs) * 2


@pytest.mark.matrix(
    theirs=[Doubling, DoublingForward],
    first_on=["ours", "theirs"],
    first_off=["ours", "theirs"],
    path=["blocks.0", "blocks.1", "blocks.0.attn1"],
)
def test_hooks_on_one_module_come_off_in_any_order(
    tiny_wan: Any, theirs: type[ModelHook], first_on: str, first_off: str, path: str
) -> None:
    config = replace(NEVER, reuse="residual") if path == "blocks.1" else replace(OFTEN, proxy="self_attention")
    pipe = tiny_wan.pipe
    registry = HookRegistry.check_if_exists_or_initialize(pipe.transformer.get_submodule(path))
    plain, forwards = tiny_wan.run(), forwards_of(pipe)

    def run_fully() -> Tensor:
        return tiny_wan.run(num_inference_steps=8)

    undisturbed = run_fully()
    registry.register_hook(theirs(), "theirs")
    doubled = run_fully()
    registry.remove_hook("theirs")
    assert not torch.equal(doubled, undisturbed)
    if first_on == "theirs":
        registry.register_hook(theirs(), "theirs")
    acceleration = galaxydit.accelerate(pipe, config=config)
    if first_on == "ours":
        registry.register_hook(theirs(), "theirs")
    with pytest.warns(FullComputeWarning, match="too few"):
        assert torch.equal(run_fully(), doubled)
    if first_off == "theirs":
        registry.remove_hook("theirs")
        assert torch.equal(run_fully(), undisturbed)
        assert len(acceleration.reports) == 2
        acceleration.remove()
    else:
        acceleration.remove()
        assert torch.equal(run_fully(), doubled)
        registry.remove_hook("theirs")
    assert torch.equal(tiny_wan.run(), plain)
    after = forwards_of(pipe)
    assert {name for name in after if after[name] is not None} <= {*forwards, path}
    assert not registry.hooks


def test_a_model_cast_to_bfloat16_while_accelerated_goes_on_working(tiny_wan: Any, config: GalaxyDiTConfig) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        tiny_wan.run()
        tiny_wan.pipe.to(dtype=torch.bfloat16)
        latents = tiny_wan.run()
    assert acceleration.report.reused_steps == 6
    assert acceleration.report.bytes_held < acceleration.reports[0].bytes_held
    with galaxydit.accelerate(tiny_wan.pipe, config=config):
        assert torch.equal(tiny_wan.run(), latents)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
def test_a_copy_of_an_accelerated_model_is_refused_and_the_original_unharmed(
    tiny_wan: Any, duplicate: Callable[[Any], Any]
) -> None:
    """A copied hook would run the original's weights without a word."""
    transformer = tiny_wan.pipe.transformer
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        latents = tiny_wan.run()
        with pytest.raises(GalaxyDiTError, match=r"cannot be copied.*remove\(\)"):
            duplicate(transformer)
        assert torch.equal(tiny_wan.run(), latents)
    assert acceleration.report.reused_steps > 0
    duplicate(transformer)


def test_an_accelerated_pipeline_is_saved_as_if_it_were_not(tiny_wan: Any, tmp_path: Path) -> None:
    plain = tiny_wan.run()
    tiny_wan.pipe.save_pretrained(tmp_path / "plain")
    with galaxydit.accelerate(tiny_wan.pipe, config=CONFIGS["residual"]):
        tiny_wan.run()
        tiny_wan.pipe.save_pretrained(tmp_path / "accelerated")
    files = sorted(path.relative_to(tmp_path / "plain") for path in (tmp_path / "plain").rglob("*.*"))
    assert len(files) > 5
    for file in files:
        assert (tmp_path / "plain" / file).read_bytes() == (tmp_path / "accelerated" / file).read_bytes()
    loaded = WanPipeline.from_pretrained(tmp_path / "accelerated")
    loaded.set_progress_bar_config(disable=True)
    assert torch.equal(replace(tiny_wan, pipe=loaded).run(), plain)


@pytest.mark.parametrize(("proxy", "path"), [("block_output", "blocks.0"), ("self_attention", "blocks.0.attn1")])
def test_a_module_that_writes_over_its_last_output_is_watched_truly(tiny_wan: Any, proxy: str, path: str) -> None:
    """As CUDA graphs do: what is remembered of a step must not be the model's own memory."""

    def distances() -> list[float | None]:
        with galaxydit.accelerate(tiny_wan.pipe, threshold=1e-9, proxy=proxy) as acceleration:
            tiny_wan.run()
        return [call.distance for call in acceleration.report.calls]

    expected = distances()
    module = tiny_wan.pipe.transformer.get_submodule(path)
    compute = module.forward
    memory: list[Tensor] = []

    def write_over(*arguments: Any, **named: Any) -> Tensor:
        output = compute(*arguments, **named)
        if not memory:
            memory.append(torch.empty_like(output))
        return memory[0].copy_(output)

    module.forward = write_over
    assert distances() == expected


@pytest.fixture
def with_adapters(tiny_wan: Any) -> Any:
    """Two LoRA adapters, neither in use."""
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    torch.manual_seed(3)
    for name in ("first", "second"):
        tiny_wan.pipe.transformer.add_adapter(settings, name)
    tiny_wan.pipe.transformer.disable_adapters()
    return tiny_wan


def test_an_adapter_loaded_after_accelerating_is_part_of_the_next_generation(
    tiny_wan: Any, config: GalaxyDiTConfig
) -> None:
    peft = pytest.importorskip("peft")
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        without = tiny_wan.run()
        torch.manual_seed(3)
        settings = peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
        tiny_wan.pipe.transformer.add_adapter(settings, "style")
        latents = tiny_wan.run()
    assert not torch.equal(latents, without)
    assert acceleration.report.reused_steps == 6
    with galaxydit.accelerate(tiny_wan.pipe, config=config):
        assert torch.equal(tiny_wan.run(), latents)


CHANGES: dict[str, Callable[[Any], None]] = {
    "another adapter": lambda transformer: transformer.set_adapters(["second"]),
    "one more adapter": lambda transformer: transformer.set_adapters(["first", "second"]),
    "another weight": lambda transformer: transformer.set_adapters(["first"], [0.5]),
    "switched off": lambda transformer: transformer.disable_adapters(),
    "merged": lambda transformer: transformer.fuse_lora(),
}


@pytest.mark.filterwarnings("ignore:Already found a .peft_config. attribute")
@pytest.mark.parametrize("change", CHANGES)
def test_adapters_changed_in_the_middle_are_not_answered_with_old_outputs(with_adapters: Any, change: str) -> None:
    transformer = with_adapters.pipe.transformer
    transformer.enable_adapters()
    transformer.set_adapters(["first"])

    def alter(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 6:
            CHANGES[change](transformer)
        return tensors

    with (
        galaxydit.accelerate(with_adapters.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, 3)))) as acceleration,
        pytest.warns(FullComputeWarning, match="adapters changed between two steps"),
    ):
        with_adapters.run(callback_on_step_end=alter)
    (report,) = acceleration.reports
    assert [call.step for call in report.calls if not call.reused][::2] == [0, 1, 2, 3, 7]
    assert any("adapters changed between two steps" in note for note in report.notes)


@pytest.mark.filterwarnings("ignore:Already found a .peft_config. attribute")
def test_a_scale_of_adapters_changed_in_the_arguments_is_not_answered_with_old_outputs(with_adapters: Any) -> None:
    with_adapters.pipe.transformer.enable_adapters()
    scale = {"scale": 1.0}

    def alter(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 6:
            scale["scale"] = 0.5
        return tensors

    with (
        galaxydit.accelerate(with_adapters.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, 3)))) as acceleration,
        pytest.warns(FullComputeWarning, match="attention_kwargs changed between two steps"),
    ):
        with_adapters.run(callback_on_step_end=alter, attention_kwargs=scale)
    assert [call.step for call in acceleration.report.calls if not call.reused and call.step > 3] == [7, 7]


@pytest.mark.parametrize("padded", [False, True])
def test_the_step_after_a_hotswap_is_computed(tiny_wan: Any, tmp_path: Path, padded: bool) -> None:
    """Weights are exchanged in place; for adapters of other ranks they are padded, and the scales are tensors."""
    peft = pytest.importorskip("peft")
    pipe, weights = tiny_wan.pipe, []
    for rank in (2, 4 if padded else 2):
        settings = peft.LoraConfig(r=rank, lora_alpha=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
        pipe.transformer.add_adapter(settings, "made")
        weights.append(peft.get_peft_model_state_dict(pipe.transformer, adapter_name="made"))
        pipe.transformer.delete_adapters("made")
    if padded:
        pipe.transformer.enable_lora_hotswap(target_rank=4, check_compiled="ignore")
    for rank, state in zip("ab", weights, strict=True):
        WanPipeline.save_lora_weights(tmp_path / rank, transformer_lora_layers=state)
    pipe.load_lora_weights(tmp_path / "a", adapter_name="style")

    def swap(pipe: Any, step: int, timestep: Any, values: Any) -> Any:
        if step == 6:
            pipe.load_lora_weights(tmp_path / "b", adapter_name="style", hotswap=True)
        return values

    config = GalaxyDiTConfig(FixedSteps((0, 1, 2, 9)))
    for callback, computed in ((None, {0, 1, 2, 9}), (swap, {0, 1, 2, 7, 9})):
        with galaxydit.accelerate(pipe, config=config) as acceleration:
            tiny_wan.run(callback_on_step_end=callback)
        assert {step for step, _ in acceleration.report.computed_steps} == computed
