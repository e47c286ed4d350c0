"""`min_psnr` and `quality`: what they choose, and what they refuse."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diffusers import WanPipeline
from profile_parts import PROMPT, SETTINGS, profile_for, target_of

import galaxydit
from galaxydit.errors import GalaxyDiTError, NoEffectWarning, ProfileWarning
from galaxydit.pipelines.generate import generate
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.evidence import Evidence, Verification
from galaxydit.profiles.schema import Profile, fastest_verified
from galaxydit.request import QUALITIES, Request


def verification(speedup: float, low: float) -> Verification:
    return Verification(speedup, None, 1 / speedup, low + 2, low, low + 4, 8)


def measured(pipe: WanPipeline) -> Profile:
    """A profile verified at 1.5x (36 dB by schedule, 34 dB by proxy), 2x (38 and 30 dB) and 2.5x (31 and 29 dB)."""
    profile = profile_for(pipe)
    targets = tuple(
        replace(target_of(speedup, profile.conditions.sigmas), threshold=1.0) for speedup in (1.5, 2.0, 2.25, 2.5)
    )
    evidence = Evidence(
        "a test",
        verifications=tuple(map(verification, (1.5, 2.0, 2.5), (36.0, 38.0, 31.0))),
        proxy_verifications=tuple(map(verification, (1.5, 2.0, 2.5), (34.0, 30.0, 29.0))),
    )
    return replace(profile, recipe=replace(profile.recipe, targets=targets), evidence=evidence)


@pytest.mark.parametrize(
    ("min_psnr", "policy", "speedup"),
    [
        (37.0, "auto", 2.0),
        (36.0, "auto", 2.0),
        (31.1, "auto", 2.0),
        (31.0, "auto", 2.5),
        (5.0, "auto", 2.5),
        (30.0, "proxy", 2.0),
        (33.0, "proxy", 1.5),
        (33.0, "schedule", 2.0),
    ],
)
def test_a_psnr_takes_the_largest_speedup_that_was_verified_to_reach_it(
    tiny_wan_pipeline: WanPipeline, min_psnr: float, policy: str, speedup: float
) -> None:
    profile = measured(tiny_wan_pipeline)
    assert fastest_verified(profile, "", min_psnr, policy).speedup == speedup
    with galaxydit.accelerate(tiny_wan_pipeline, min_psnr=min_psnr, policy=policy, profile=profile) as acceleration:
        chosen = acceleration.config.policy
    assert isinstance(chosen, ProxyThreshold if policy == "proxy" else Schedule)
    schedule = chosen.schedule if isinstance(chosen, ProxyThreshold) else chosen
    assert schedule.speedup == pytest.approx(speedup, rel=0.01)


def test_auto_reads_the_verification_of_the_policy_that_it_takes(tiny_wan_pipeline: WanPipeline) -> None:
    profile = measured(tiny_wan_pipeline)
    targets = tuple(replace(target, policy="proxy") for target in profile.recipe.targets)
    profile = replace(profile, recipe=replace(profile.recipe, targets=targets))
    assert profile.verified_at(2.0, "auto") == profile.evidence.proxy_verifications[1]
    assert fastest_verified(profile, "", 33.0, "auto").speedup == 1.5


def test_a_speedup_between_two_verified_ones_promises_nothing(tiny_wan_pipeline: WanPipeline) -> None:
    assert measured(tiny_wan_pipeline).verified_at(2.25, "auto") is None


def test_the_report_states_what_was_verified_and_nothing_under_other_conditions(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, min_psnr=35, profile=measured(tiny_wan_pipeline)) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
        line = str(acceleration.report).splitlines()[0]
        assert line.startswith("Asked for a PSNR of at least 35 dB, so 2x, reached 2.00x")
        assert line.endswith("40.0 dB (38.0 to 42.0) in the mean of the profile's 8 held-out prompts.")
        with pytest.warns(ProfileWarning, match="guidance_scale=5"):
            generate(tiny_wan_pipeline, PROMPT, replace(SETTINGS, guidance_scale=5.0), 0)
        assert "unknown, because the profile was verified under other conditions" in str(acceleration.report)


def test_a_psnr_verified_in_another_dtype_is_not_stated(tiny_wan_pipeline: WanPipeline) -> None:
    profile = measured(tiny_wan_pipeline)
    profile = replace(profile, conditions=replace(profile.conditions, dtype="bfloat16"))
    with (
        galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=profile) as acceleration,
        pytest.warns(ProfileWarning, match="computes in float32, and the profile was measured in bfloat16"),
    ):
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    assert "expected PSNR against the plain video: unknown" in str(acceleration.report).splitlines()[0]


@pytest.mark.parametrize("changed", [{"warmup": 0.3}, {"max_error": 0.1}, {"proxy": "noisy_latent"}])
def test_a_verification_holds_only_for_the_recipe_that_was_verified(
    tiny_wan_pipeline: WanPipeline, changed: dict[str, Any]
) -> None:
    profile = measured(tiny_wan_pipeline)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=profile, **changed) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    assert acceleration.report.goal is not None
    assert acceleration.report.goal.verified is None


def test_a_psnr_that_nothing_measured_is_refused_with_the_cure(tiny_wan_pipeline: WanPipeline) -> None:
    unmeasured = "min_psnr=30 is not allowed: expected a profile with measured PSNRs, and "
    with pytest.raises(
        GalaxyDiTError, match=unmeasured + "no profile belongs to this model; run `galaxydit calibrate --budget full`"
    ):
        galaxydit.accelerate(tiny_wan_pipeline, min_psnr=30)
    profile = measured(tiny_wan_pipeline)
    unverified = replace(profile, evidence=replace(profile.evidence, verifications=(), proxy_verifications=()))
    with pytest.raises(GalaxyDiTError, match="and profile tiny holds none; run `galaxydit calibrate --"):
        galaxydit.accelerate(tiny_wan_pipeline, min_psnr=30, profile=unverified)
    with pytest.raises(GalaxyDiTError, match=r"at most 38, which profile tiny verified at 2x; .*lossless"):
        galaxydit.accelerate(tiny_wan_pipeline, min_psnr=39, profile=profile)


@pytest.mark.parametrize(("word", "fraction"), [("lossless", 1.0), ("high", 0.65), ("balanced", 0.5), ("fast", 0.35)])
@pytest.mark.filterwarnings("error::galaxydit.NoEffectWarning")
def test_each_word_of_quality_is_a_speedup(tiny_wan_pipeline: WanPipeline, word: str, fraction: float) -> None:
    plain = generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    with galaxydit.accelerate(tiny_wan_pipeline, quality=word) as acceleration:
        video = generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    assert acceleration.report.compute_fraction == pytest.approx(fraction)
    assert bool((video.frames == plain.frames).all()) is (word == "lossless")
    first = str(acceleration.report).splitlines()[0]
    assert first.startswith(f"Asked for quality '{word}' ({QUALITIES[word]:g}x), reached")
    assert ("the video is the plain one" in first) is (word == "lossless")


def test_a_threshold_of_0_still_warns(tiny_wan_pipeline: WanPipeline) -> None:
    with pytest.warns(NoEffectWarning, match="raise it"):
        galaxydit.accelerate(tiny_wan_pipeline, threshold=0).remove()


@pytest.mark.parametrize("goal", [{"quality": "balanced"}, {"min_psnr": 35}, {}])
def test_without_a_number_for_the_speedup_short_generations_are_computed_in_full(
    tiny_wan_pipeline: WanPipeline, goal: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.profiles.changed_conditions.SERVED_SHARE", 0.65)
    with (
        galaxydit.accelerate(tiny_wan_pipeline, profile=measured(tiny_wan_pipeline), **goal) as acceleration,
        pytest.warns(ProfileWarning, match="12 steps are too few for the profile"),
    ):
        generate(tiny_wan_pipeline, PROMPT, replace(SETTINGS, steps=12), 0)
    assert acceleration.report.compute_fraction == 1.0
    assert "because too few steps for the profile (12 steps)" in str(acceleration.report).splitlines()[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": "best"}, "quality='best' is not allowed: expected one of 'lossless', 'high', 'balanced', 'fast'"),
        ({"quality": "high", "speedup": 2.0}, "quality is given together with speedup"),
        ({"quality": "lossless", "policy": "proxy"}, "quality is given together with policy"),
        ({"min_psnr": 30, "quality": "high", "warmup": 0.1}, "min_psnr is given together with quality and warmup"),
        ({"min_psnr": 30, "threshold": 0.1}, "min_psnr is given together with threshold"),
        ({"min_psnr": 0}, "min_psnr=0 is not allowed: expected a number from 1 to 100"),
    ],
)
def test_goals_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GalaxyDiTError, match=message):
        Request(**options)


def test_the_readme_says_what_each_word_means() -> None:
    page = (Path(galaxydit.__file__).parent / "README.md").read_text(encoding="utf-8")
    for word, speedup in QUALITIES.items():
        assert f'| `quality="{word}"` | {speedup:g}x' in page
