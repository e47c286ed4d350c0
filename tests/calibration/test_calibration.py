import json
import multiprocessing
import signal
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from copied_makers import OnCopies
from diffusers import WanPipeline
from trials import tried

import galaxydit
from galaxydit.calibration.budget import FULL, Budget
from galaxydit.calibration.calibration import Calibration, calibrate
from galaxydit.calibration.parts import CalibrationMaker, Tried
from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.runs import Rank, Unit
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.profile_registry import load_profile
from galaxydit.profiles.schema import Profile
from galaxydit.proxies import PROXIES
from galaxydit.validation import parse

MOMENTS = 3


def test_the_profile_holds_what_was_asked_for_and_meets_it(calibration: Calibration) -> None:
    profile = calibration.profile
    assert [target.speedup for target in profile.evidence.verifications] == [1.5, 2.0]
    for target in profile.evidence.verifications:
        assert target.compute_fraction is not None
        assert abs(target.compute_fraction * target.speedup - 1) < 0.06  # 12 steps: one step is 8 %
        assert target.psnr_db > 20
    assert profile.conditions.steps == 12
    assert profile.conditions.samples == 3
    assert {row.proxy for row in profile.evidence.ranking} == set(PROXIES)
    assert {row.prompt for row in calibration.verifications}.isdisjoint(r.prompt for r in calibration.recordings)
    seconds = profile.evidence.seconds
    assert seconds is not None
    assert len(seconds.predicted_speedup) == len(seconds.measured_speedup) == 2


@pytest.mark.parametrize(("weight", "generated"), [(0.0, 2), (1.0, 4)])
def test_a_video_is_verified_once_where_both_policies_compute_the_same_steps(
    weight: float,
    generated: int,
    calibration: Calibration,
    tiny_wan_pipeline: WanPipeline,
    settings: GenerationSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, measure = [], CalibrationMaker.try_profile

    def counted(*args: object) -> Tried:
        asked.append(args)
        return measure(*args)

    profile = with_distances(calibration.profile, weight)
    monkeypatch.setattr(CalibrationMaker, "try_profile", counted)
    maker = CalibrationMaker(lambda: tiny_wan_pipeline)
    maker.prepare(Rank())
    tried = [(profile.to_dict(), policy, (1.5, 2.0)) for policy in ("proxy", "schedule")]
    data = {"part": "videos", "prompt": "a cyan ball", "seed": 3, "settings": asdict(settings), "tried": tried}
    by_draft = parse(list[list[Tried]], maker.make(Unit("verification", data)).result)
    assert len(asked) == generated
    plain = generate(tiny_wan_pipeline, "a cyan ball", settings, 3)
    for row in (row for rows in by_draft for row in rows):  # as if each had been generated
        alone = measure(maker, profile, row.policy, row.speedup, plain)
        assert (row.psnr_db, row.full_steps) == (alone.psnr_db, alone.full_steps)
        assert row.compute_fraction == alone.compute_fraction


def with_distances(profile: Profile, weight: float) -> Profile:
    """The profile with a proxy that runs no block, at a weight of its deviations; at 1 they move steps."""
    curve = replace(profile.recipe.cumulative_distance, distances=tuple(step**2 / 1000 for step in range(12)))
    recipe = replace(profile.recipe, proxy="noisy_latent", proxy_share=0.0, deviation_weight=weight)
    return replace(profile, recipe=replace(recipe, cumulative_distance=curve))


def test_accelerate_follows_a_measured_profile(
    calibration: Calibration, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
) -> None:
    calibration.profile.save(tmp_path / "tiny.json")
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=tmp_path / "tiny.json") as acceleration:
        generate(tiny_wan_pipeline, "a cyan triangle grows over a dotted background", settings, 77)
    assert acceleration.report.compute_fraction == pytest.approx(0.5, rel=0.06)
    computed = sorted({call.step for call in acceleration.report.calls if not call.reused})
    sigmas = calibration.profile.conditions.sigmas
    assert tuple(sigmas[step] for step in computed) == calibration.profile.target_for(2.0).sigmas
    assert acceleration.report.notes == ()
    assert acceleration.report.config.proxy == calibration.profile.recipe.proxy


def calibrate_into(
    folder: Path, pipe: WanPipeline, prompts: list[str], settings: GenerationSettings, proxy_costs: dict[str, float]
) -> None:
    calibrate(
        pipe,
        prompts,
        resume_dir=folder / "parts",
        budget=Budget((3, 3), True, 0, 1),
        settings=settings,
        speedups=(2.0,),
        proxy_costs=proxy_costs,
        name="tiny",
        on_profile=lambda profile: profile.save(folder / "profile.json"),
    )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_calibration_killed_at_random_moments_leaves_a_profile_and_ends_as_an_undisturbed_one(
    tiny_wan_pipeline: WanPipeline,
    prompts: list[str],
    settings: GenerationSettings,
    proxy_costs: dict[str, float],
    tmp_path: Path,
) -> None:
    """Each run is a process of its own, forked from this one so that it need not import anything."""
    context = multiprocessing.get_context("fork")

    def killed_after(folder: Path, seconds: float | None) -> tuple[bool, float]:
        """Whether the run was killed, and its seconds."""
        arguments = (folder, tiny_wan_pipeline, prompts, settings, proxy_costs)
        run, started = context.Process(target=calibrate_into, args=arguments), time.monotonic()
        run.start()
        run.join(seconds)
        run.kill()
        run.join()
        assert run.exitcode in (0, -signal.SIGKILL)
        return run.exitcode != 0, time.monotonic() - started

    def is_whole(folder: Path) -> bool:
        return load_profile(folder / "profile.json") == load_profile(tmp_path / "undisturbed" / "profile.json")

    _, whole = killed_after(tmp_path / "undisturbed", None)
    moments, kills, samples = Random(7), 0, set()
    for number in range(100):
        folder = tmp_path / str(number)
        while killed_after(folder, moments.uniform(0, whole))[0]:  # else it was done before the moment
            kills += 1
            recorded = len(list(folder.glob("parts/units/sample-*.json")))
            if recorded > 1 or (folder / "profile.json").exists():
                left = load_profile(folder / "profile.json")
                samples.add(left.conditions.samples)
                assert 1 <= left.conditions.samples <= recorded
            if kills == MOMENTS:
                finished = {part: part.stat().st_mtime_ns for part in folder.glob("parts/units/*.json")}
                killed_after(folder, None)
                assert all(part.stat().st_mtime_ns == at for part, at in finished.items()), "parts are kept"
                break
        assert is_whole(folder)
        if kills == MOMENTS:
            break
    assert samples


def test_on_other_workers_the_profile_is_that_of_one_process(
    calibration: Calibration,
    tiny_wan_pipeline: WanPipeline,
    tiny_wan_folder: Path,
    prompts: list[str],
    settings: GenerationSettings,
    proxy_costs: dict[str, float],
    tmp_path: Path,
) -> None:
    shared = calibrate(
        tiny_wan_pipeline,
        prompts,
        resume_dir=tmp_path / "shared",
        budget=Budget((3, 3), True, 8, 1),
        settings=settings,
        speedups=(1.5, 2.0),
        proxy_costs=proxy_costs,
        name="tiny",
        executor=OnCopies(),
        load=partial(load_pipeline, tiny_wan_folder, dtype=torch.float32),
    )
    assert shared.profile == calibration.profile
    assert shared.profile.identity == calibration.profile.identity


def test_damaged_parts_are_measured_again_and_those_of_other_samples_are_left_alone(
    calibration: Calibration,
    tiny_wan_pipeline: WanPipeline,
    prompts: list[str],
    settings: GenerationSettings,
    proxy_costs: dict[str, float],
    parts: Path,
) -> None:
    (path,) = (parts / "units").glob("sample-0001-*.json")
    path.write_text("{")
    (path,) = (parts / "units").glob("sample-0000-*.json")
    earlier = json.loads(path.read_text())
    earlier["result"]["own"] = None  # as earlier versions wrote it
    path.write_text(json.dumps(earlier))
    options = {"settings": settings, "speedups": (1.5, 2.0), "name": "tiny"}
    options["proxy_costs"] = proxy_costs
    again = calibrate(tiny_wan_pipeline, prompts, resume_dir=parts, budget=Budget((3, 3), True, 8, 1), **options)
    assert again.profile == calibration.profile
    count = len(list((parts / "units").iterdir()))
    calibrate(tiny_wan_pipeline, prompts, resume_dir=parts, budget=Budget((3, 3), True, 8, 1), seed=5, **options)
    assert len(list((parts / "units").iterdir())) == 2 * count


def test_a_part_that_fails_is_named(
    tiny_wan_pipeline: WanPipeline, prompts: list[str], settings: GenerationSettings, tmp_path: Path, monkeypatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("galaxydit.calibration.parts.record_sample", fail)
    with pytest.raises(GalaxyDiTError, match=r"sample-0000-.* failed: RuntimeError: no luck"):
        calibrate(
            tiny_wan_pipeline, prompts, resume_dir=tmp_path / "p", budget=Budget((3, 3), True, 8, 1), settings=settings
        )


@pytest.mark.parametrize("better", [0, 1])
def test_the_order_with_the_better_videos_is_chosen(
    better: int,
    tiny_wan_pipeline: WanPipeline,
    prompts: list[str],
    settings: GenerationSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def verified(_: object, profile: Profile, policy: str, speedup: float, plain: GeneratedVideo) -> Tried:
        psnr = 30.0 if profile.recipe.order == better else 29.0
        return tried("schedule", speedup, plain.prompt, 0, 0.5, psnr)

    monkeypatch.setattr(CalibrationMaker, "try_profile", verified)
    options = {"settings": settings, "speedups": (1.5, 2.0)}
    found = calibrate(tiny_wan_pipeline, prompts, resume_dir=tmp_path, budget=Budget((2, 2), True, 8, 1), **options)
    assert found.profile.recipe.order == better
    assert found.psnr_of_order == {better: 30.0, 1 - better: 29.0}
    assert "chance" not in found.chosen_order
    assert "may be chance" in replace(found, psnr_of_order={better: 30.0, 1 - better: 30.1}).chosen_order


@pytest.mark.parametrize(("follows", "generated"), [(True, 2 + 1), (False, 2 + 1 + 3 * 2)])
def test_proxies_that_move_no_step_share_the_videos_of_the_schedule(
    follows: bool,
    generated: int,
    tiny_wan_pipeline: WanPipeline,
    prompts: list[str],
    settings: GenerationSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def verified(_: object, profile: Profile, policy: str, speedup: float, plain: GeneratedVideo) -> Tried:
        asked.append(plain.prompt)
        return tried("schedule", speedup, plain.prompt, 0, 0.5, 30.0 + speedup)

    monkeypatch.setattr(CalibrationMaker, "try_profile", verified)
    monkeypatch.setattr("galaxydit.calibration.choose.follows_schedule", lambda *_: follows)
    options = {"settings": settings, "speedups": (2.0, 3.0)}
    made = calibrate(tiny_wan_pipeline, prompts, resume_dir=tmp_path, budget=Budget((2, 2), True, 8, 1), **options)
    assert asked.count(prompts[0]) == generated
    compared = made.profile.evidence.compared_proxies
    assert len(compared) == 3
    assert {tuple(at.psnr_db for at in proxy.measured) for proxy in compared} == {(32.0, 33.0)}


def test_a_decoder_that_overflows_gives_no_profile(
    tiny_wan_pipeline: WanPipeline, prompts: list[str], settings: GenerationSettings, tmp_path: Path
) -> None:
    tiny_wan_pipeline.vae.decoder.conv_out.register_forward_hook(lambda module, inputs, output: output * torch.nan)
    with pytest.raises(GalaxyDiTError, match=r"choice-0000.* failed: .*NaN is not allowed"):
        calibrate(tiny_wan_pipeline, prompts, resume_dir=tmp_path, budget=Budget((2, 2), True, 8, 1), settings=settings)


def test_a_profile_names_the_device_that_was_timed_also_when_another_one_resumes(
    calibration: Calibration,
    tiny_wan_pipeline: WanPipeline,
    prompts: list[str],
    settings: GenerationSettings,
    proxy_costs: dict[str, float],
    parts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("galaxydit.calibration.parts.device_name", lambda pipe: "another")
    options = {"settings": settings, "speedups": (1.5, 2.0), "name": "tiny"}
    options["proxy_costs"] = proxy_costs
    again = calibrate(tiny_wan_pipeline, prompts, resume_dir=parts, budget=Budget((3, 3), True, 8, 1), **options)
    assert again.profile.conditions.device == calibration.profile.conditions.device != "another"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": ["a"], "budget": FULL}, "at least 2 for a verification"),
        ({"prompts": []}, "prompts="),
        ({"settings": GenerationSettings(32, 32, 5, steps=4)}, "steps=4"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_at_once(
    tiny_wan_pipeline: WanPipeline, prompts: list[str], tmp_path: Path, options: dict, message: str
) -> None:
    with pytest.raises(GalaxyDiTError, match=message):
        calibrate(tiny_wan_pipeline, **{"prompts": prompts, "resume_dir": tmp_path} | options)


@pytest.mark.parametrize("speedup", [0.5, 0.0, -2.0, float("nan"), float("inf"), 1000.0, 30.0])
def test_a_speedup_that_cannot_be_planned_is_refused_before_anything_is_recorded(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, speedup: float
) -> None:
    settings = GenerationSettings(32, 32, 5, steps=50, guidance_scale=3.0)
    with pytest.raises(GalaxyDiTError, match="speedups"):
        calibrate(
            tiny_wan_pipeline,
            list("abcdef"),
            resume_dir=tmp_path / "parts",
            settings=settings,
            speedups=(2.0, speedup),
        )
    assert not (tmp_path / "parts").exists()


def test_the_profile_says_what_each_policy_and_each_compared_proxy_gave(calibration: Calibration) -> None:
    evidence, recipe = calibration.profile.evidence, calibration.profile.recipe
    assert [one.speedup for one in evidence.proxy_verifications] == [one.speedup for one in evidence.verifications]
    for one in (*evidence.verifications, *evidence.proxy_verifications):
        assert one.prompts == 1
        assert one.psnr_db is not None
    assert all(target.threshold is not None for target in recipe.targets)
    assert evidence.compared_proxies[0].proxy == recipe.proxy
    assert len({PROXIES[one.proxy].tensor_name for one in evidence.compared_proxies}) == 3
    assert all(one.proxy in evidence.reason for one in evidence.compared_proxies)


def test_the_proxy_policy_of_a_measured_profile_reads_its_proxy_and_reaches_the_speedup(
    calibration: Calibration, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    with galaxydit.accelerate(
        tiny_wan_pipeline, speedup=2.0, policy="proxy", profile=calibration.profile
    ) as acceleration:
        generate(tiny_wan_pipeline, "a cyan triangle grows over a dotted background", settings, 77)
    report = acceleration.report
    assert report.compute_fraction == pytest.approx(0.5, abs=0.09)  # 12 steps: one step is 0.083
    assert any(call.distance is not None for call in report.calls)
