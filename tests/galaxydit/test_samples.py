"""Prompts that share a batch: each sample decides for itself, as if it were alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel
from tiny_table import PIPELINES
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, FullComputeWarning, GalaxyDiTConfig, Online, Threshold
from galaxydit.policies.policy import Controller, Observation, Reason
from galaxydit.runtime.rows import join_rows, join_samples, rows_of, sample_count, take_rows

PROMPTS = (
    "a red ball moves left over a plain background",
    "a blue square grows over a dotted background",
    "a green ball",
)
SETTINGS = {
    "output": GalaxyDiTConfig(Threshold(0.11)),
    "residual": GalaxyDiTConfig(Threshold(0.12), reuse="residual"),
    "noisy latent": GalaxyDiTConfig(Threshold(0.04), proxy="noisy_latent"),
    "block input": GalaxyDiTConfig(Threshold(0.04), proxy="block_input"),
    "part of a block": GalaxyDiTConfig(Threshold(0.12), proxy="self_attention"),
    "residual, part of a block": GalaxyDiTConfig(Threshold(0.12), proxy="self_attention", reuse="residual"),
    "max error": GalaxyDiTConfig(Online(max_error=0.2)),
}


def noise(sample: int) -> Tensor:
    """Noise that differs in size, too, so that the samples decide differently."""
    generator = torch.Generator().manual_seed(sample)
    return (1 + sample / 2) * torch.randn(1, 16, 2, 4, 4, generator=generator)


def run(tiny: Any, *samples: int, **changes: Any) -> Tensor:
    """The latents of these samples in one batch."""
    latents = torch.cat([noise(sample) for sample in samples])
    return tiny.run(**{"prompt": [PROMPTS[sample] for sample in samples], "latents": latents} | changes)


def decisions(report: Any, sample: int = 0) -> list[tuple[int, str, bool]]:
    return [(call.step, call.branch, call.reused) for call in report.calls if call.sample == sample]


def distances(report: Any, sample: int = 0) -> list[float]:
    return [call.distance for call in report.calls if call.sample == sample and call.distance is not None]


def test_rows_of_samples_are_taken_and_put_back() -> None:
    batch = torch.arange(12.0).view(6, 2)
    rows = [rows_of(places, 3, 6) for places in ([0, 2], [1])]
    assert rows == [[0, 2, 3, 5], [1, 4]]
    parts = [(take_rows(batch, each, 6),) for each in rows]
    assert torch.equal(join_rows(parts, rows)[0], batch)
    assert torch.equal(join_samples([batch[sample::3] for sample in range(3)]), batch)
    frames = torch.arange(12.0)
    assert take_rows((batch, frames), [4], 6)[1].tolist() == [8.0, 9.0]
    assert take_rows((batch, "text"), [4], 6) is None


@pytest.mark.parametrize(("branches", "samples"), [(1, 3), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_guidance_in_one_batch_repeats_the_samples(branches: int, samples: int) -> None:
    latent = torch.randn(samples, 8, 4).repeat(branches, 1, 1)
    assert sample_count(latent) == samples


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_without_guidance_prompts_of_one_seed_are_no_guidance_branches(seeds: tuple[int, int]) -> None:
    pipe, _ = PIPELINES["Mochi"].build()
    both = {
        name: torch.cat([value, 10 * torch.randn(value.shape, generator=torch.Generator().manual_seed(7))])
        if "embeds" in name
        else torch.cat([value, value])
        if isinstance(value, Tensor)
        else value
        for name, value in PIPELINES["Mochi"].arguments.items()
    }
    first = {name: value[:1] if isinstance(value, Tensor) else value for name, value in both.items()}
    settings = {"num_inference_steps": 20, "guidance_scale": 1.0, "output_type": "latent", "return_dict": False}
    with galaxydit.accelerate(pipe, max_error=0.3) as acceleration:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        together = pipe(generator=generators, **settings, **both)[0]
        fractions = acceleration.report.compute_fractions
        alone = pipe(generator=generators[0].manual_seed(seeds[0]), **settings, **first)[0]
    assert fractions[0] == acceleration.report.compute_fraction
    assert len(fractions) == 2
    torch.testing.assert_close(together[:1], alone, atol=1e-4, rtol=1e-4)


def test_controllers_share_no_state() -> None:
    """Numbers alone: a sample that is fed its own distances decides as it does without the other."""

    def decide(controller: Controller, step: int, distance: float) -> bool:
        return controller.decide(Observation(step, 20, distance, has_history=True)).reuse

    config = GalaxyDiTConfig(Threshold(0.1))
    easy, hard = [0.01] * 20, [0.06] * 20
    both = Controller(config.policy, config.limits), Controller(config.policy, config.limits)
    together = [[decide(both[0], step, easy[step]), decide(both[1], step, hard[step])] for step in range(20)]
    for index, distances in enumerate((easy, hard)):
        alone = Controller(config.policy, config.limits)
        assert [row[index] for row in together] == [decide(alone, step, distances[step]) for step in range(20)]
    assert sum(row[0] for row in together) > sum(row[1] for row in together)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_batch_decides_as_single_runs_do(tiny_wan: Any, name: str) -> None:
    alone = []
    with galaxydit.accelerate(tiny_wan.pipe, config=SETTINGS[name]) as acceleration:
        for sample in range(3):
            alone.append((run(tiny_wan, sample), acceleration.report))
        together = run(tiny_wan, 0, 1, 2)
    report = acceleration.report
    assert not report.notes
    for sample, (_, single) in enumerate(alone):
        assert decisions(report, sample) == decisions(single)
        assert distances(report, sample) == pytest.approx(distances(single), rel=1e-3)
    assert len({tuple(decisions(report, sample)) for sample in range(3)}) > 1
    torch.testing.assert_close(together, torch.cat([latents for latents, _ in alone]), atol=1e-4, rtol=1e-4)
    assert report.compute_fraction == pytest.approx(sum(report.compute_fractions.values()) / 3)
    assert "compute fraction by sample: " in str(report)


@pytest.mark.parametrize("proxy", ["block_residual", "self_attention", "block_input", "noisy_latent"])
def test_the_blocks_that_run_are_those_that_the_report_counts(tiny_wan: Any, proxy: str) -> None:
    rows = 0

    def count(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal rows
        rows += len(output)

    handles = [block.ffn.register_forward_hook(count) for block in tiny_wan.pipe.transformer.blocks]
    config = GalaxyDiTConfig(Threshold(0.125 if "block_r" in proxy else 0.06), proxy=proxy)
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        run(tiny_wan, 0, 1, 2)
    for handle in handles:
        handle.remove()
    calls = acceleration.report.calls
    assert len({sum(call.reused for call in calls if call.sample == sample) for sample in range(3)}) > 1
    # A step that all samples reuse leaves the block in the middle, before its feed-forward part.
    assert rows == sum(int(call.blocks_run) for call in calls)


def test_a_speedup_is_met_in_every_sample(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, speedup=2.0) as acceleration:
        run(tiny_wan, 0, 1, 2, num_inference_steps=30)
    for fraction in acceleration.report.compute_fractions.values():
        assert 1 / fraction == pytest.approx(2.0, rel=0.05)


def test_at_threshold_0_and_after_removal_a_batch_is_what_it_was(tiny_wan: Any) -> None:
    plain = run(tiny_wan, 0, 1)
    with pytest.warns(galaxydit.NoEffectWarning):
        acceleration = galaxydit.accelerate(tiny_wan.pipe, threshold=0)
    with acceleration:
        assert torch.equal(run(tiny_wan, 0, 1), plain)
    with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(Threshold(1e-9))) as acceleration:
        assert torch.equal(run(tiny_wan, 0, 1), plain)
    assert {call.sample for call in acceleration.report.calls} == {0, 1}
    with galaxydit.accelerate(tiny_wan.pipe, config=SETTINGS["output"]):
        assert not torch.equal(run(tiny_wan, 0, 1), plain)
    assert torch.equal(run(tiny_wan, 0, 1), plain)
    registries = [one for one in tiny_wan.pipe.transformer.modules() if hasattr(one, "_diffusers_hook")]
    assert not any(module._diffusers_hook.hooks for module in registries)


def test_several_videos_of_a_prompt_are_samples(tiny_wan: Any, tmp_path: Path) -> None:
    latents = torch.cat([noise(0), noise(1)])
    with galaxydit.accelerate(tiny_wan.pipe, config=SETTINGS["output"]) as acceleration:
        tiny_wan.run(prompt=PROMPTS[0], num_videos_per_prompt=2, latents=latents)
        together = acceleration.report
        for sample in range(2):
            tiny_wan.run(prompt=PROMPTS[0], latents=latents[sample : sample + 1])
            assert decisions(together, sample) == decisions(acceleration.report)
    together.plot(tmp_path / "decisions.png")
    assert [call["sample"] for call in together.to_dict()["calls"][:4]] == [0, 1, 0, 1]


def test_a_sample_keeps_its_rows_in_a_concatenated_batch(tiny_pipeline: Callable[[str], Any]) -> None:
    """LTX puts the unconditional and the conditional branch of all samples into one batch."""
    tiny = tiny_pipeline("LTX")
    names = [name for name, value in tiny.arguments.items() if isinstance(value, Tensor)]
    texts = [{name: tiny.arguments[name] + sample * 0.1 for name in names if "mask" not in name} for sample in (0, 1)]
    latents = [
        (1 + 3 * sample) * torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(sample)) for sample in (0, 1)
    ]
    both = {name: torch.cat([text[name] for text in texts]) for name in texts[0]}
    both |= {name: torch.cat([tiny.arguments[name]] * 2) for name in names if "mask" in name}
    alone = []
    with galaxydit.accelerate(tiny.pipe, config=GalaxyDiTConfig(Threshold(0.1))) as acceleration:
        for text, latent in zip(texts, latents, strict=True):
            alone.append((tiny.run(**text, latents=latent), acceleration.report))
        together = tiny.run(**both, latents=torch.cat(latents))
    for sample, (_, single) in enumerate(alone):
        assert decisions(acceleration.report, sample) == decisions(single)
    assert decisions(acceleration.report, 0) != decisions(acceleration.report, 1)
    torch.testing.assert_close(together, torch.cat([latent for latent, _ in alone]), atol=1e-4, rtol=1e-4)


def test_one_decision_may_serve_the_batch(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=replace(SETTINGS["output"], per_sample=False)) as acceleration:
        run(tiny_wan, 0, 1, 2)
        assert len(acceleration.report.calls) == 24
    with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, 5, 8, 11)))) as acceleration:
        run(tiny_wan, 0, 1, 2)
    assert len(acceleration.report.calls) == 24, "a fixed list of steps is the same for all samples"


def test_inputs_that_cannot_be_divided_are_computed_for_all(tiny_wan: Any) -> None:
    arguments = {"attention_kwargs": {"of_each_sample": torch.ones(3)}}
    with galaxydit.accelerate(tiny_wan.pipe, config=SETTINGS["output"]) as acceleration:
        run(tiny_wan, 0, 1, 2)
        apart = acceleration.report
        with pytest.warns(FullComputeWarning, match="not known how to divide"):
            run(tiny_wan, 0, 1, 2, **arguments)
    report = acceleration.report
    assert len(report.notes) == 1
    for step in range(12):
        assert len({call.reused for call in report.calls if call.step == step}) == 1
    assert Reason.OTHER_SAMPLE in {call.reason for call in report.calls}
    assert report.compute_fraction > apart.compute_fraction


@pytest.mark.parametrize("threshold", [0.08, 0.2])
def test_a_first_and_a_last_frame_for_each_prompt_stay_with_their_sample(threshold: float) -> None:
    """Wan2.1's FLF2V passes two rows of image embeddings for each prompt."""
    torch.manual_seed(0)
    transformer = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=36,
        out_channels=16,
        text_dim=16,
        freq_dim=32,
        ffn_dim=32,
        num_layers=4,
        rope_max_seq_len=32,
        image_dim=8,
        added_kv_proj_dim=24,
        pos_embed_seq_len=6,
    ).eval()
    text, images = torch.randn(2, 8, 16), torch.randn(4, 3, 8)
    start = torch.randn(2, 36, 2, 4, 4) * torch.tensor([1.0, 3.0]).view(2, 1, 1, 1, 1)

    def denoise(*chosen: int) -> tuple[Tensor, list[float]]:
        places = list(chosen)
        frames = images.view(2, 2, 3, 8)[places].flatten(0, 1)
        latent = start[places].clone()
        with torch.no_grad(), galaxydit.accelerate(transformer, config=GalaxyDiTConfig(Threshold(threshold))) as found:
            for step in range(20):
                with transformer.cache_context("cond", step_index=step, num_inference_steps=20, sigma=1 - step / 20):
                    timestep = torch.full((len(places),), 1000 - 50 * step)
                    output = transformer(latent, timestep, text[places], frames, return_dict=False)[0]
                latent = latent.clone()
                latent[:, :16] -= 0.05 * output
            return latent, list(found.report.compute_fractions)

    together, fractions = denoise(0, 1)
    assert fractions[0] != fractions[1]
    for sample in (0, 1):
        torch.testing.assert_close(together[sample : sample + 1], denoise(sample)[0], atol=1e-4, rtol=1e-4)
