"""The README's worked examples do what it says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import MochiTransformer3DModel
from torch import Tensor

import galaxydit
from galaxydit import PROXIES, GalaxyDiTConfig, Threshold
from galaxydit.families import FAMILIES

README = (Path(galaxydit.__file__).parent / "README.md").read_text(encoding="utf-8")


def run_example(heading: str, **names: Any) -> dict[str, Any]:
    """Run the first Python block below a heading, and return what it defines."""
    found = re.search(rf"^##+ {heading}$.*?^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found is not None
    exec(found[1], names)
    return names


@pytest.fixture(autouse=True)
def registries_as_they_were() -> Iterator[None]:
    families, proxies = dict(FAMILIES), dict(PROXIES)
    yield
    for registry, before in ((FAMILIES, families), (PROXIES, proxies)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


class Prompted:
    """The tiny pipeline, called with a prompt alone."""

    def __init__(self, tiny_wan: Any) -> None:
        self.transformer, self.scheduler = tiny_wan.pipe.transformer, tiny_wan.pipe.scheduler
        self.run = tiny_wan.run

    def __call__(self, prompt: str) -> Tensor:
        return self.run(prompt=prompt)


def denoise(transformer: Any) -> Tensor:
    """The sum of all outputs of 12 steps with guidance as one concatenated batch."""
    generator = torch.Generator().manual_seed(0)
    latents, text = torch.randn(1, 4, 2, 4, 4, generator=generator), torch.randn(2, 8, 16, generator=generator)
    mask, total = torch.ones(2, 8, dtype=torch.bool), torch.zeros(2, 4, 2, 4, 4)
    with torch.no_grad():
        for step in range(12):
            with transformer.cache_context("cond_uncond", step_index=step, num_inference_steps=12, sigma=1 - step / 12):
                batch, timestep = torch.cat([latents * (1 - step / 40)] * 2), torch.full((2,), 1000.0 - 80 * step)
                total += transformer(batch, text, timestep, mask, return_dict=False)[0]
    return total


def test_a_family_is_one_entry() -> None:
    run_example("Adding a family")
    torch.manual_seed(0)
    transformer = MochiTransformer3DModel(
        patch_size=2,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=3,
        pooled_projection_dim=16,
        in_channels=4,
        text_embed_dim=16,
        time_embed_dim=4,
        activation_fn="swiglu",
        max_sequence_length=8,
    ).eval()
    plain = denoise(transformer)
    (description,) = galaxydit.describe(transformer)
    assert (description.family, description.blocks) == ("Mochi", 3)
    for proxy in description.proxies:
        config = GalaxyDiTConfig(Threshold(50.0), proxy, max_consecutive=2)
        with galaxydit.accelerate(transformer, config=config) as acceleration:
            denoise(transformer)
        assert [call.step for call in acceleration.report.calls if call.reused] == [3, 4, 6, 7, 9, 10]
        assert [note for note in acceleration.report.notes if "scheduler is unknown" not in note] == []
    assert torch.equal(denoise(transformer), plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_proxy_is_one_entry(tiny_wan: Any, dtype: torch.dtype) -> None:
    run_example("Adding a proxy")
    tiny_wan.pipe.transformer.to(dtype)
    config = GalaxyDiTConfig(Threshold(50.0), "pooled_latent", max_consecutive=2)
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        tiny_wan.run()
    calls = acceleration.report.calls
    assert [call.step for call in calls[::2] if call.reused] == [3, 4, 6, 7, 9, 10]
    assert None not in [call.distance for call in calls[2::2]]
    assert "pooled_latent" in galaxydit.describe(tiny_wan.pipe)[0].proxies


def test_a_rule_is_a_policy_and_a_reuse(tiny_wan: Any) -> None:
    calls: list[tuple[Tensor, Tensor]] = []

    def keep(module: Any, args: Any, kwargs: dict[str, Tensor], output: Any) -> None:
        calls.append((kwargs["hidden_states"], output[0]))

    hook = tiny_wan.pipe.transformer.register_forward_hook(keep, with_kwargs=True)
    report = run_example("Adding a rule", pipe=Prompted(tiny_wan))["acceleration"].report
    hook.remove()
    reused = [place for place, call in enumerate(report.calls) if call.reused]
    assert reused
    for place in reused:
        last = next(each for each in range(place - 2, -1, -2) if not report.calls[each].reused)
        (latent, output), (before, kept) = calls[place], calls[last]
        torch.testing.assert_close(output, latent + kept - before)


@pytest.mark.parametrize("knows_scheduler", [True, False])
def test_a_loop_of_ones_own_states_all_that_is_needed(tiny_wan: Any, knows_scheduler: bool) -> None:
    run = run_example("A denoising loop of your own")["denoise"]
    transformer, scheduler = tiny_wan.pipe.transformer, tiny_wan.pipe.scheduler
    generator = torch.Generator().manual_seed(0)
    latents, text = torch.randn(1, 16, 2, 4, 4, generator=generator), torch.randn(1, 8, 128, generator=generator)
    with torch.no_grad():
        plain = run(transformer, scheduler, latents, text, 0 * text, 20)
        given = {"scheduler": scheduler} if knows_scheduler else {}
        with galaxydit.accelerate(transformer, quality="balanced", **given) as acceleration:
            videos = [run(transformer, scheduler, latents, text, 0 * text, 20) for _ in range(2)]
    assert torch.equal(*videos)
    assert not torch.equal(videos[0], plain)
    assert [report.compute_fraction for report in acceleration.reports] == [0.5, 0.5]
    unknown = [note for note in acceleration.report.notes if "scheduler is unknown" in note]
    assert bool(unknown) is not knows_scheduler


def called_with_a_prompt(tiny_wan: Any) -> Any:
    class Pipe(type(tiny_wan.pipe)):  # type: ignore[misc]
        """The tiny pipeline, called with a prompt."""

        def __call__(self, prompt: str, num_inference_steps: int = 12, **settings: Any) -> Any:
            given = tiny_wan.arguments | {"prompt": prompt, "num_inference_steps": num_inference_steps}
            return super().__call__(**given | settings)

    tiny_wan.pipe.__class__ = Pipe
    return tiny_wan.pipe


def test_settings_change_per_request(tiny_wan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_example("Settings per request", galaxydit=galaxydit, pipe=called_with_a_prompt(tiny_wan))
    assert names["acceleration"].config.policy.speedup == 3.0
    assert names["request"].report.compute_fraction == 1.0
    assert capsys.readouterr().out.startswith("1.0\n")


def test_plain_steps_at_the_planned_levels(tiny_wan: Any) -> None:
    pipe = called_with_a_prompt(tiny_wan)
    planned = run_example("Planned noise levels without a cache", galaxydit=galaxydit, pipe=pipe)["planned"]
    assert tuple(pipe.scheduler.timesteps.tolist()) == planned.timesteps
    assert len(planned.timesteps) == 25


@pytest.mark.filterwarnings("ignore::galaxydit.NoEffectWarning")
def test_an_observer_sees_every_call(tiny_wan: Any) -> None:
    names = run_example("Observing a generation", pipe=Prompted(tiny_wan))
    assert set(names["observer"].norms) == {(step, branch) for step in range(12) for branch in ("cond", "uncond")}
