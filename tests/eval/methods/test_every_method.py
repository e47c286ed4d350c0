"""Every method of the comparison: what it computes, by hand, and that it leaves no trace."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import SeaCacheConfig, TaylorSeerCacheConfig, WanPipeline
from tiny_table import PIPELINES

from galaxydit.eval.compare.tune import coarse
from galaxydit.eval.methods.db_cache import FORECASTERS
from galaxydit.eval.methods.method_registry import declared, is_installed, load_method, slug_of
from galaxydit.eval.methods.taylorseer import taylorseer_config
from galaxydit.pipelines.compute_counter import ComputeCounter, measure_parts
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.settings import GenerationSettings

PROMPT = "a red ball moves left over a plain background"
STEPS = 10  # galaxydit reuses nothing at 8 steps and fewer
METHODS = {
    name: load_method(name)
    for name, declaration in declared().items()
    if declaration.source != "ablation"  # they need a model with a profile, see test_ablations.py
}
NEVER_AGAIN = 1e9  # a threshold that no change reaches
BLOCKS = 3
PROXY = {"proxy": "block_residual"}


def needs(name: str) -> Any:
    method = METHODS[name]
    return pytest.param(name, marks=pytest.mark.skipif(not is_installed(method.needs), reason=f"needs {method.needs}"))


@pytest.fixture(scope="module")
def ten_steps() -> GenerationSettings:
    return GenerationSettings(height=32, width=32, num_frames=5, steps=STEPS, guidance_scale=3.0, fps=8.0)


class Plain:
    """A pipeline that no method touches, after one generation."""

    def __init__(self, pipe: WanPipeline, settings: GenerationSettings) -> None:
        self.parts = measure_parts(pipe, PROMPT, settings)
        self.frames = generate(pipe, PROMPT, settings, seed=0).frames
        self.call = type(pipe).__call__
        self.attributes = [set(vars(owner)) for owner in owners_in(pipe)]


def owners_in(pipe: WanPipeline) -> list[Any]:
    """What a method could leave an attribute on."""
    return [pipe, *pipe.transformer.modules()]


@pytest.fixture(scope="module")
def plain(tiny_wan_builder: Callable[[], WanPipeline], ten_steps: GenerationSettings) -> Plain:
    return Plain(tiny_wan_builder(), ten_steps)


@pytest.fixture
def run_method(tiny_wan_pipeline, ten_steps, plain) -> Callable[..., tuple[GeneratedVideo, float]]:
    """Runs a method once; gives the video and the compute fraction counted."""
    parts = plain.parts
    plain_flops = 2 * STEPS * sum(part.flops for part in parts)

    def run(name: str, setting: dict[str, Any], calibration: Any = None) -> tuple[GeneratedVideo, float]:
        method = METHODS[name]
        settings = method.generation(ten_steps, setting) if method.generation else ten_steps
        with (
            method.attach(tiny_wan_pipeline, setting, calibration) as attached,
            ComputeCounter(tiny_wan_pipeline.transformer, parts, attached.bytes_held) as counter,
        ):
            video = generate(tiny_wan_pipeline, PROMPT, settings, seed=0)
        return video, counter.flops / plain_flops

    return run


def test_names_are_unique_also_in_job_files_and_can_be_listed_with_commas():
    names = list(declared())
    assert len({slug_of(name) for name in names}) == len(names)
    assert not [name for name in names if "," in name]


@pytest.mark.parametrize("name", declared())
def test_a_declaration_that_is_read_from_the_syntax_is_that_of_the_method(name):
    read, method = declared()[name], load_method(name)
    fields = ("name", "source", "tuned", "needs")
    assert [getattr(read, field) for field in fields] == [getattr(method, field) for field in fields]
    assert load_method(method.slug) is method


@pytest.mark.parametrize("name", METHODS)
def test_candidate_settings_are_different_json(name):
    texts = [json.dumps(dict(setting), sort_keys=True) for setting in METHODS[name].settings(50)]
    assert len(texts) > 1 or not METHODS[name].tuned
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("order", [0, 1])
def test_the_grid_of_sea_cache_has_the_defaults_of_diffusers(order):
    settings = METHODS[f"SeaCache order {order}"].settings(50)
    assert SeaCacheConfig(residual_order=order) in [
        SeaCacheConfig(residual_order=order, **setting) for setting in settings
    ]
    assert len(settings) == 63
    assert len(coarse(settings, [2.0])) == 3 * 5 + 2 * 6


@pytest.fixture(scope="module")
def calibrations() -> dict[Callable[..., Any], Any]:
    """Results of `calibrate`, which methods share with their published settings."""
    return {}


@pytest.mark.parametrize("name", [needs(name) for name in METHODS])
def test_a_method_leaves_no_trace(name, tiny_wan_pipeline, ten_steps, run_method, plain, calibrations):
    method, owners = METHODS[name], owners_in(tiny_wan_pipeline)
    if method.calibrate and method.calibrate not in calibrations:
        calibrations[method.calibrate] = method.calibrate(tiny_wan_pipeline, [PROMPT, "a"], ten_steps, 0)
    calibration = calibrations.get(method.calibrate)
    fastest = dict(method.settings(STEPS)[-1])
    if not method.tuned and "threshold" in fastest:  # a published one may reuse nothing on random weights
        fastest["threshold"] = NEVER_AGAIN
    with_method, fraction = run_method(name, fastest, calibration)
    after = generate(tiny_wan_pipeline, PROMPT, ten_steps, seed=0)
    assert fraction < 1 or (name == "repeated plain run" and fraction == pytest.approx(1))
    assert not np.array_equal(with_method.frames, plain.frames)
    assert np.array_equal(after.frames, plain.frames)
    assert type(tiny_wan_pipeline).__call__ is plain.call
    for owner, names in zip(owners, plain.attributes, strict=True):
        assert set(vars(owner)) - names <= {"_diffusers_hook"}


def test_fewer_steps_count_as_their_share(run_method):
    assert run_method("fewer steps", {"steps": 4})[1] == pytest.approx(0.4)
    assert run_method("optimised noise levels", {"steps": 4, "levels": 2.0, "of": STEPS})[1] == pytest.approx(0.4)


@pytest.mark.parametrize("order", [0, 1])
def test_uniform_skip_computes_the_steps_it_says(order, run_method):
    assert run_method(f"uniform skip order {order}", {"steps": STEPS, "full_steps": 4})[1] == pytest.approx(0.4)


def test_a_schedule_computes_its_steps(run_method):
    assert run_method("searched schedule", {"full_steps": 3}, {"3": [0, 2, 7]})[1] == pytest.approx(0.3)


def test_first_block_cache_runs_one_block_after_the_first_step(run_method):
    _, fraction = run_method("FirstBlockCache", {"threshold": NEVER_AGAIN})
    assert fraction == pytest.approx((BLOCKS + (STEPS - 1)) / (BLOCKS * STEPS))


def test_mag_cache_computes_the_retained_steps_alone(run_method):
    setting = {"steps": STEPS, "threshold": NEVER_AGAIN, "max_skip_steps": 100, "retention_ratio": 0.2}
    assert run_method("MagCache", setting, {"ratios": [1.0] * STEPS})[1] == pytest.approx(0.2)


def test_mag_cache_is_calibrated_by_its_own_mode(tiny_wan_pipeline, ten_steps):
    ratios = METHODS["MagCache"].calibrate(tiny_wan_pipeline, [PROMPT], ten_steps, 0)["ratios"]
    assert len(ratios) == STEPS
    assert ratios[0] == 1.0
    assert all(0.5 < ratio < 2 for ratio in ratios)


@pytest.mark.parametrize("lite", [True, False])
def test_taylorseer_computes_every_other_step_after_its_start(lite, run_method):
    setting = {"cache_interval": 2, "disable_cache_before_step": 4, "max_order": 1, "lite": lite}
    assert run_method("TaylorSeer", setting)[1] == pytest.approx(0.7)  # 0 to 3, 5, 7, 9
    assert run_method("TaylorSeer", setting | {"disable_cache_after_step": 8})[1] == pytest.approx(0.8)


def test_the_grid_of_taylorseer_has_the_defaults_of_diffusers_and_every_order(tiny_wan_pipeline):
    settings = METHODS["TaylorSeer"].settings(50)
    configs = [taylorseer_config(tiny_wan_pipeline, setting) for setting in settings]
    default, fields = TaylorSeerCacheConfig(), ("cache_interval", "disable_cache_before_step", "max_order")
    for lite in (True, False):
        found = [each for each in configs if each.use_lite_mode is lite and each.disable_cache_after_step == 50]
        assert [getattr(default, field) for field in fields] in [[getattr(c, field) for field in fields] for c in found]
    assert {each.max_order for each in configs} == {0, 1, 2}
    assert len(settings) <= 90


@pytest.mark.parametrize("order", [0, 1])
def test_sea_cache_computes_first_last_and_every_fourth(order, run_method):
    setting = {"threshold": NEVER_AGAIN, "max_consecutive_cached": 3}
    assert run_method(f"SeaCache order {order}", setting)[1] == pytest.approx(0.4)  # 0, 4, 8, 9


@pytest.mark.parametrize("order", [1, 2])
def test_hicache_and_taylorseer_compute_the_published_steps(order, run_method):
    setting = {"cache_interval": 3, "disable_cache_before_step": 3, "max_order": order, "lite": False}
    for name in ("TaylorSeer published", "HiCache published"):
        assert run_method(name, setting)[1] == pytest.approx(0.5)  # 0, 1, 2, 5, 8


def test_a_step_list_computes_its_steps_and_those_of_one_branch(run_method):
    for name in ("step list", "LeMiCa published", "LeMiCa with galaxydit's reuse"):
        assert run_method(name, {"full": [0, 1, 5]})[1] == pytest.approx(0.3)
    assert run_method("step list", {"full": [0, 1, 5], "conditional_only": [9]})[1] == pytest.approx(0.35)


def test_ertacache_computes_the_steps_of_its_offline_schedule(run_method):
    errors = [[1.0 if step in (3, 7) else 0.0] * step for step in range(STEPS)]
    factors = {branch: [[0.0] * step for step in range(STEPS)] for branch in ("cond", "uncond")}
    calibration = {"errors": errors, "factors": factors, "scales": [factors["cond"]] * 2}
    setting = {"full_steps": 3, "adjust": False, "rectify": False}
    assert run_method("ERTACache (guessed)", setting, calibration)[1] == pytest.approx(0.3)  # 0, 3, 7


def test_profiling_dit_runs_its_foreground_blocks_between_full_steps(run_method):
    setting = {"first": 2, "interval": 4, "share": 0.67}
    _, fraction = run_method("ProfilingDiT", setting, {"foreground_attention": [1.2, 0.8, 0.9]})
    assert fraction == pytest.approx((4 + 6 / BLOCKS) / STEPS)  # 0, 1, 2 and 6 in full


def share_of(parts, name):
    return sum(part.flops for part in parts if part.path.endswith(name)) / sum(part.flops for part in parts)


def test_faster_cache_skips_the_unconditional_branch_and_attention(plain, run_method):
    own = share_of(plain.parts, "attn1")
    setting = {"unconditional_every": 5, "attention_every": 2, "start": 1001, "alpha": 1.0}
    _, fraction = run_method("FasterCache", setting)
    # Both branches at steps 0 and 5; of the 8 others the conditional one, at 1, 3, 7 and 9 without self-attention.
    assert fraction == pytest.approx((2 + 8 / 2 - own * 4 / 2) / STEPS)


@pytest.mark.skipif(not is_installed("cache_dit"), reason="needs cache_dit")
@pytest.mark.parametrize("name", ["DBCache", "DBCache + TaylorSeer", "DBCache joint CFG"])
def test_db_cache_runs_its_first_block_after_the_warm_up(name, run_method):
    order = {"order": 1} if "TaylorSeer" in name else {}
    setting = {"threshold": NEVER_AGAIN, "warmup_steps": 2, "first_blocks": 1, **order}
    assert run_method(name, setting)[1] == pytest.approx((2 * BLOCKS + 8) / (BLOCKS * STEPS))


@pytest.mark.skipif(not is_installed("cache_dit"), reason="needs cache_dit")
@pytest.mark.parametrize("forecaster", FORECASTERS)
def test_step_masks_run_the_first_block_between_their_full_steps(forecaster, run_method):
    masks = {"preset": {"preset": "ultra"}, "planned": {"plan": 2.0}}
    for name, mask in masks.items():  # the preset computes 0, 1, 3, 6 and 9 of 10, the plan half of the steps
        _, fraction = run_method(f"DBCache {name} masks", {"steps": STEPS, "forecaster": forecaster, **mask})
        assert fraction == pytest.approx((5 * BLOCKS + 5) / (BLOCKS * STEPS))


def test_the_paper_reads_the_proxy_in_one_branch(run_method, monkeypatch):
    monkeypatch.setattr("galaxydit.profiles.configure.DOCUMENTED_PROXIES", ("block_residual",))
    _, fraction = run_method("galaxydit paper", {"threshold": NEVER_AGAIN})
    assert fraction == pytest.approx((2 * 2 * BLOCKS + 8) / (2 * BLOCKS * STEPS))


def test_branches_alone_read_it_in_both(run_method, monkeypatch):
    monkeypatch.setattr("galaxydit.profiles.configure.DOCUMENTED_PROXIES", ("block_residual",))
    _, fraction = run_method("galaxydit paper branches alone", {"threshold": NEVER_AGAIN})
    assert fraction == pytest.approx((2 * 2 * BLOCKS + 16) / (2 * BLOCKS * STEPS))


@pytest.mark.parametrize("name", ["galaxydit", "galaxydit without a profile"])
@pytest.mark.parametrize(("speedup", "full_steps"), [(1.25, 8), (2.0, 5)])
def test_the_default_computes_the_steps_that_its_speedup_allows(name, speedup, full_steps, run_method):
    assert run_method(name, {"speedup": speedup})[1] == pytest.approx(full_steps / STEPS)


@pytest.mark.parametrize("name", ["FasterCache", "Pyramid Attention Broadcast"])
def test_caches_that_need_a_timestep_run_where_the_scheduler_counts_no_steps(name: str) -> None:
    pipe, run = PIPELINES["CogVideoX video"].build()
    assert not hasattr(pipe.scheduler, "step_index")
    plain = run()
    with METHODS[name].attach(pipe, METHODS[name].settings(12)[-1], None):
        run()
    assert torch.equal(run(), plain)
