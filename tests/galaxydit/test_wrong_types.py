"""Values of the wrong type or out of range: one base class, one grammar, and nothing is attached."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError, Online, Schedule, Threshold, general_schedule
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import save_video
from galaxydit.request import Request

GRAMMAR = r"(?s)^[\w ]+=.* is not allowed: expected .+; .+"
WRONG_NUMBERS = ["2", [2], {}, None, torch.tensor(2.0), 10**400, 10**5000, float("nan"), float("inf"), -1, True]
WRONG_ARGUMENTS = [
    *({name: value} for name in ("speedup", "max_error", "threshold") for value in WRONG_NUMBERS if value is not None),
    {"warmup": "0.2"},
    {"proxy": 5},
    {"proxy": ["block_residual"]},
    {"proxy": "block_residal"},
    {"config": {}},
    {"config": GalaxyDiTConfig},
    {"scheduler": 5},
    {"profile": 5},
    {"profile": {}},
    {"profile": "nowhere"},
    {"keep_reports": "all"},
    {"keep_reports": 0},
]


@pytest.mark.parametrize(
    "wrong", WRONG_ARGUMENTS, ids=lambda wrong: f"{next(iter(wrong))} {type(next(iter(wrong.values())))}"
)
def test_an_argument_of_the_wrong_type_is_refused_and_nothing_is_attached(tiny_wan: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(GalaxyDiTError, match=GRAMMAR):
        galaxydit.accelerate(tiny_wan.pipe, **wrong)
    galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig()).remove()


@pytest.mark.parametrize(
    "build",
    [
        lambda: GalaxyDiTConfig(policy=5),  # type: ignore[arg-type]
        lambda: GalaxyDiTConfig(policy=Schedule),  # type: ignore[arg-type]
        lambda: GalaxyDiTConfig(proxy=torch.zeros(2)),  # type: ignore[arg-type]
        lambda: GalaxyDiTConfig(keep_last=1.0),  # type: ignore[arg-type]
        lambda: Threshold("0.1"),  # type: ignore[arg-type]
        lambda: FixedSteps(5),  # type: ignore[arg-type]
        lambda: FixedSteps(("0",)),  # type: ignore[arg-type]
        lambda: Online(2.0, error_map=5),  # type: ignore[arg-type]
        lambda: Schedule(2.0, 5),  # type: ignore[arg-type]
        lambda: Schedule(2.0, ()),
        lambda: Schedule(2.0, ("1",)),  # type: ignore[arg-type]
        lambda: general_schedule("2"),  # type: ignore[arg-type]
    ],
)
def test_a_setting_of_the_wrong_type_is_refused(build: Any) -> None:
    with pytest.raises(GalaxyDiTError, match=GRAMMAR):
        build()


def test_an_array_is_shown_in_one_line() -> None:
    with pytest.raises(GalaxyDiTError) as refused:
        GalaxyDiTConfig(warmup=torch.zeros(30, 30))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_a_misspelt_name_gets_a_proposal() -> None:
    with pytest.raises(GalaxyDiTError, match="did you mean 'block_residual'"):
        GalaxyDiTConfig(proxy="block_residal")


@pytest.mark.parametrize(
    ("build", "near"),
    [
        (lambda: GalaxyDiTConfig(warmupp=0.3), "warmup"),  # type: ignore[call-arg]
        (lambda: GenerationSettings(step=3), "steps"),  # type: ignore[call-arg]
    ],
)
def test_a_misspelt_field_gets_a_proposal(build: Any, near: str) -> None:
    with pytest.raises(GalaxyDiTError, match=f"did you mean '{near}'"):
        build()


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_refused(path: Any) -> None:
    frames = np.zeros((1, 16, 16, 3), np.uint8)
    with pytest.raises(GalaxyDiTError, match=r"path=.* is not allowed: expected a text or a path"):
        save_video(frames, path, fps=8)


def test_a_speedup_that_no_plan_can_serve_is_refused_and_the_largest_is_named(tiny_wan: Any) -> None:
    with pytest.raises(GalaxyDiTError, match=r"expected at most 25, because no plan computes fewer than 2 of 50 steps"):
        galaxydit.accelerate(tiny_wan.pipe, speedup=1e9, proxy="block_input")
    galaxydit.accelerate(tiny_wan.pipe, speedup=3.0).remove()


def test_the_largest_speedup_that_is_named_is_accepted(tiny_wan: Any) -> None:
    with pytest.raises(GalaxyDiTError, match=r"expected at most 1, .* pass for example speedup=1"):
        galaxydit.accelerate(tiny_wan.pipe, warmup=1.0)
    galaxydit.accelerate(tiny_wan.pipe, warmup=1.0, speedup=1).remove()


def test_a_scheduler_class_is_no_scheduler(tiny_wan: Any) -> None:
    with pytest.raises(GalaxyDiTError, match="expected an instance of a diffusers scheduler"):
        galaxydit.accelerate(tiny_wan.pipe.transformer, scheduler=type(tiny_wan.pipe.scheduler))


@pytest.mark.parametrize(
    "build",
    [
        lambda number, count: Request(speedup=number(2), warmup=number(0)),
        lambda number, count: Request(max_error=number(0.5)),
        lambda number, count: GalaxyDiTConfig(
            Threshold(number(2)),
            warmup=number(0.5),
            keep_last=count(2),
            max_consecutive=count(3),
            order=count(1),
            slope=number(0.5),
            few_steps=count(0),
        ),
        lambda number, count: FixedSteps((count(0), count(3))),
        lambda number, count: Schedule(number(2), (number(1), number(0.5)), fewest_steps=count(0)),
        lambda number, count: GenerationSettings(
            steps=count(4), height=count(32), guidance_scale=number(3), fps=number(8)
        ),
    ],
)
def test_numbers_of_numpy_are_those_of_python(build: Any) -> None:
    expected = build(float, int)
    numbers = ((np.float32, np.int64), (np.float64, np.int8), (np.float16, np.uint16), (np.longdouble, np.int32))
    for number, count in numbers:
        assert build(number, count) == expected
        assert json.dumps(asdict(build(number, count))) == json.dumps(asdict(expected))


def test_numbers_of_numpy_accelerate_a_pipeline(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, speedup=np.float32(2), keep_reports=np.int64(2)) as acceleration:
        for _ in range(3):
            tiny_wan.run(num_inference_steps=12)
        with acceleration.using(speedup=np.int64(3)) as request:
            assert request.config.policy.speedup == 3
        assert len(acceleration.reports) == 2
        json.dumps(acceleration.report.to_dict())


@pytest.mark.parametrize("value", [True, np.bool_(True), np.complex64(2), np.array([2.0]), np.float32("nan")])
def test_what_is_no_finite_number_is_refused(value: Any, tiny_wan: Any) -> None:
    with pytest.raises(GalaxyDiTError, match=r"speedup=.* is not allowed: expected a number"):
        galaxydit.accelerate(tiny_wan.pipe, speedup=value)
    with pytest.raises(GalaxyDiTError, match=r"keep_reports=.* is not allowed: expected a whole number"):
        galaxydit.accelerate(tiny_wan.pipe, keep_reports=value)


@pytest.mark.parametrize(
    ("call", "wrong", "right"),
    [
        (galaxydit.accelerate, "speed", "speedup"),
        (galaxydit.accelerate, "min_pnsr", "min_psnr"),
        (galaxydit.apply_galaxydit, "conf", "config"),
        (galaxydit.calibrate, "promts", "prompts"),
        (galaxydit.learn, "setings", "settings"),
        (galaxydit.noise_levels, "profil", "profile"),
        (galaxydit.estimate, "speed_up", "speedup"),
        (load_pipeline, "lora2", "lora_2"),
    ],
)
def test_a_misspelt_argument_gets_a_proposal(call: Any, wrong: str, right: str, tiny_wan: Any) -> None:
    with pytest.raises(
        GalaxyDiTError, match=rf"{call.__name__}\(\) takes no argument '{wrong}': .*did you mean '{right}'"
    ):
        call(tiny_wan.pipe, **{wrong: 2})


def test_a_misspelt_argument_of_a_request_gets_a_proposal(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:
        for change in (acceleration.set, acceleration.using):
            with pytest.raises(GalaxyDiTError, match="did you mean 'speedup'"):
                change(speed=2)
