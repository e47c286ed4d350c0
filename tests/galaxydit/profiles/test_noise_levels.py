"""Plain steps at the planned noise levels, without the plugin."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    CogVideoXDDIMScheduler,
    DiffusionPipeline,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
)

import galaxydit
from galaxydit import DataWarning, GalaxyDiTError
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.profiles.planned_scheduler import with_saved_levels

UNIPC = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def test_a_pipeline_without_sigmas_samples_at_the_levels_of_its_full_steps(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, speedup=2.0, policy="schedule") as acceleration:
        tiny_wan.run()
    planned = galaxydit.noise_levels(tiny_wan.pipe, 2.0, 12)
    computed = sorted({call.step for call in acceleration.report.calls if not call.reused})
    assert planned.full_steps == tuple(computed)
    tiny_wan.pipe.scheduler = planned.scheduler
    tiny_wan.run(num_inference_steps=len(planned.levels))
    np.testing.assert_allclose(tiny_wan.pipe.scheduler.sigmas[:-1], planned.levels, atol=2e-6)
    assert tuple(tiny_wan.pipe.scheduler.timesteps.tolist()) == planned.timesteps


@pytest.mark.parametrize("shift", [1.0, 7.0])
def test_a_scheduler_that_takes_sigmas_shifts_them_to_the_levels(tiny_wan: Any, shift: float) -> None:
    tiny_wan.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    planned = galaxydit.noise_levels(tiny_wan.pipe, 3.0, 30)
    tiny_wan.pipe.scheduler.set_timesteps(sigmas=list(planned.sigmas))
    np.testing.assert_allclose(tiny_wan.pipe.scheduler.sigmas[:-1], planned.levels, atol=1e-6)
    assert len(planned.levels) == 10


@pytest.mark.parametrize(
    "scheduler",
    [
        CogVideoXDDIMScheduler(),
        UniPCMultistepScheduler(),
        FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        EulerDiscreteScheduler(),  # its last sigma is the end, which is not clean here
        None,
    ],
)
def test_other_schedulers_are_refused(tiny_wan: Any, scheduler: Any) -> None:
    tiny_wan.pipe.scheduler = scheduler
    with pytest.raises(GalaxyDiTError, match=f"scheduler='{type(scheduler).__name__}' is not allowed"):
        galaxydit.noise_levels(tiny_wan.pipe)


def _planned(pipe: Any, scheduler: Any) -> Any:
    pipe.scheduler = scheduler
    return galaxydit.noise_levels(pipe, 2.0, 12).scheduler


def _through_pickle(scheduler: Any) -> Any:
    return pickle.loads(pickle.dumps(scheduler))


@pytest.mark.parametrize("scheduler", [FlowMatchEulerDiscreteScheduler(shift=3.0), UNIPC])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _through_pickle])
def test_a_copy_of_a_planned_scheduler_samples_alone_at_the_same_levels(
    tiny_wan: Any, scheduler: Any, copied: Any
) -> None:
    planned = _planned(tiny_wan.pipe, scheduler)
    planned.set_timesteps(50)
    sigmas, timesteps = planned.sigmas, planned.timesteps
    made = copied(planned)
    assert type(made) is type(planned)
    assert made.config == planned.config
    assert torch.equal(made.sigmas, sigmas)
    made.set_timesteps(50)
    assert planned.sigmas is sigmas
    assert torch.equal(made.sigmas, sigmas)
    assert torch.equal(made.timesteps, timesteps)


def test_another_process_unpickles_a_planned_scheduler(tiny_wan: Any, tmp_path: Path) -> None:
    planned = _planned(tiny_wan.pipe, UNIPC)
    (tmp_path / "planned").write_bytes(pickle.dumps(planned))
    code = f"import pickle; s = pickle.loads(open({str(tmp_path / 'planned')!r}, 'rb').read()); s.set_timesteps(50)"
    told = subprocess.run([sys.executable, "-c", f"{code}; print(s.sigmas.tolist())"], capture_output=True, check=True)
    planned.set_timesteps()
    assert json.loads(told.stdout) == planned.sigmas.tolist()


@pytest.mark.parametrize("scheduler", [FlowMatchEulerDiscreteScheduler(shift=3.0), UNIPC])
def test_a_planned_scheduler_is_of_its_plain_class_in_type_and_text(tiny_wan: Any, scheduler: Any) -> None:
    planned, plain = _planned(tiny_wan.pipe, scheduler), type(scheduler)
    assert isinstance(planned, plain)
    assert type(planned) is type(_planned(tiny_wan.pipe, planned))  # planned again, from the plain levels
    assert type(planned).__name__ == plain.__name__
    assert repr(planned).startswith(f"{plain.__name__} {{")
    assert {name: planned.config[name] for name in scheduler.config} == dict(scheduler.config)


def test_a_planned_scheduler_keeps_its_levels_under_another_flow_shift_and_a_plain_one_has_none(tiny_wan: Any) -> None:
    planned = _planned(tiny_wan.pipe, UNIPC)
    shifted = type(planned).from_config(planned.config, flow_shift=1.5)
    shifted.set_timesteps(50)
    np.testing.assert_allclose(shifted.sigmas[:-1], planned.noise_levels, atol=2e-6)
    plain = UniPCMultistepScheduler.from_config(planned.config)
    plain.set_timesteps(50)
    assert len(plain.sigmas) == 51


def test_a_saved_pipeline_loads_plain_in_diffusers_and_planned_here(tiny_wan: Any, tmp_path: Path) -> None:
    planned = _planned(tiny_wan.pipe, UNIPC)
    tiny_wan.pipe.scheduler = planned
    with pytest.warns(DataWarning, match="UniPCMultistepScheduler at its own noise levels"):
        tiny_wan.pipe.save_pretrained(tmp_path)
    assert "galaxydit" not in (tmp_path / "model_index.json").read_text()
    assert type(DiffusionPipeline.from_pretrained(tmp_path).scheduler) is UniPCMultistepScheduler
    loaded = load_pipeline(tmp_path, device="cpu").scheduler
    assert loaded.noise_levels == planned.noise_levels
    assert type(loaded) is type(planned)


def test_a_plain_scheduler_made_of_a_planned_one_is_saved_and_loaded_plain(tiny_wan: Any, tmp_path: Path) -> None:
    tiny_wan.pipe.scheduler = UniPCMultistepScheduler.from_config(_planned(tiny_wan.pipe, UNIPC).config)
    tiny_wan.pipe.save_pretrained(tmp_path)
    assert type(load_pipeline(tmp_path, device="cpu").scheduler) is UniPCMultistepScheduler


@pytest.mark.parametrize("levels", ["all", [], [0.5, 0.6], [2.0, 1.0], [0.5] * 1001])
def test_damaged_levels_of_a_saved_scheduler_are_refused(levels: Any) -> None:
    scheduler = UniPCMultistepScheduler()
    scheduler.register_to_config(_saved_noise_levels=levels)
    with pytest.raises(GalaxyDiTError, match="_saved_noise_levels"):
        with_saved_levels(scheduler)
