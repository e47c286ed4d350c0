"""All schedulers of diffusers that may draw noise in a step: accelerated samples are as near to the data as plain ones.

The model is exact: data are Gaussian around a picture, and it returns what the posterior mean implies for its kind of
prediction.
"""

import importlib
import inspect
import math
import pkgutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import diffusers
import pytest
import torch
from diffusers import schedulers
from diffusers.models.cache_utils import CacheMixin
from torch import Tensor, nn

import galaxydit
from galaxydit.errors import FullComputeWarning
from galaxydit.policies.policy import Reason
from galaxydit.report import Report

STEPS, DRAWS = 50, 8
PICTURE, DEVIATION = torch.sin(torch.linspace(0, 60, 16 * 5 * 16 * 16)).view(1, 16, 5, 16, 16), 0.1
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:galaxydit. 2x was asked for"),
]
LEFT_OUT = {
    "AmusedScheduler": "denoises discrete tokens",
    "BlockRefinementScheduler": "denoises discrete tokens",
    "ConsistencyDecoderScheduler": "has two steps, and decodes images",
    "CosineDPMSolverMultistepScheduler": "needs the package torchsde",
    "DPMSolverMultistepInverseScheduler": "goes from a video to noise",
    "DPMSolverSDEScheduler": "needs the package torchsde",
    "DiscreteDDIMScheduler": "denoises discrete tokens",
    "EntropyBoundScheduler": "denoises discrete tokens",
    "HeliosDMDScheduler": "its step needs the noise and the noise levels of the distillation",
    "RFD4ProteinaScheduler": "denoises the coordinates of proteins",
    "VQDiffusionScheduler": "denoises discrete tokens",
}
"""Schedulers whose step takes a generator, and why none of the cases uses them."""

Weights = tuple[float, float]
"""Weights of clean video and white noise in a latent."""


@dataclass(frozen=True)
class Case:
    """A scheduler, the prediction of its model, and what its methods take beyond the usual arguments."""

    make: Callable[[], Any]
    prediction: str
    step: dict[str, Any] = field(default_factory=dict)
    set_timesteps: dict[str, Any] = field(default_factory=dict)


def flow_case(name: str, step: dict[str, Any] | None = None, **config: Any) -> Case:
    return Case(partial(getattr(diffusers, name), **config), "flow_prediction", step or {})


def case(name: str, prediction: str = "epsilon", step: dict[str, Any] | None = None, **config: Any) -> Case:
    make = partial(getattr(diffusers, name), prediction_type=prediction, **config)
    return Case(make, prediction, step or {})


FLOW: dict[str, Any] = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
HUB: dict[str, Any] = {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "snr_shift_scale": 1.0}
TRIGFLOW: dict[str, Any] = {"max_timesteps": 1.57, "intermediate_timesteps": None}
UNCLIPPED: dict[str, Any] = {"clip_sample": False}
SDE, V = "sde-dpmsolver++", "v_prediction"
ACCELERATED = {
    "Euler (no noise)": flow_case("FlowMatchEulerDiscreteScheduler", shift=3.0),
    "Heun (no noise)": flow_case("FlowMatchHeunDiscreteScheduler", shift=3.0),
    "Euler, epsilon (no noise)": case("EulerDiscreteScheduler"),
    "DDIM (no noise)": case("DDIMScheduler", **UNCLIPPED),
    "CogVideoX DDIM (no noise)": case("CogVideoXDDIMScheduler", V),
    "EDM Euler (no noise)": Case(diffusers.EDMEulerScheduler, "edm"),
    "EDM DPM++ (no noise)": Case(diffusers.EDMDPMSolverMultistepScheduler, "edm"),
    "Helios (no noise)": flow_case("HeliosScheduler", stages=1),
    "FlowMatchEuler": flow_case("FlowMatchEulerDiscreteScheduler", shift=3.0, stochastic_sampling=True),
    "FlowMatchLCM": flow_case("FlowMatchLCMScheduler", shift=3.0),
    "LTX Euler ancestral RF": flow_case("LTXEulerAncestralRFScheduler"),
    "DPM++ SDE, flow": flow_case("DPMSolverMultistepScheduler", **FLOW, algorithm_type=SDE),
    "DPM++ SDE, epsilon": case("DPMSolverMultistepScheduler", algorithm_type=SDE),
    "DPM++ SDE, v": case("DPMSolverMultistepScheduler", V, algorithm_type=SDE),
    "DPM++ SDE singlestep, flow": flow_case("DPMSolverSinglestepScheduler", **FLOW, algorithm_type=SDE),
    "DPM++ SDE singlestep, epsilon": case("DPMSolverSinglestepScheduler", algorithm_type=SDE),
    "SA-Solver, flow": flow_case("SASolverScheduler", **FLOW),
    "SA-Solver, epsilon": case("SASolverScheduler"),
    "SA-Solver, v": case("SASolverScheduler", V),
    "CogVideoX DPM": case("CogVideoXDPMScheduler", V),
    "CogVideoX DPM, zero SNR": case("CogVideoXDPMScheduler", V, **HUB),
    "CogVideoX DDIM, eta 1": case("CogVideoXDDIMScheduler", V, {"eta": 1.0}),
    "DDIM, eta 1": case("DDIMScheduler", step={"eta": 1.0}, **UNCLIPPED),
    "DDIM, eta 1, v": case("DDIMScheduler", V, {"eta": 1.0}, **UNCLIPPED),
    "DDIM parallel, eta 1": case("DDIMParallelScheduler", step={"eta": 1.0}, **UNCLIPPED),
    "DDPM": case("DDPMScheduler", **UNCLIPPED),
    "DDPM, v": case("DDPMScheduler", V, **UNCLIPPED),
    "DDPM, sample": case("DDPMScheduler", "sample", **UNCLIPPED),
    "DDPM parallel": case("DDPMParallelScheduler", **UNCLIPPED),
    "Euler ancestral": case("EulerAncestralDiscreteScheduler"),
    "Euler ancestral, v": case("EulerAncestralDiscreteScheduler", V),
    "Euler, small churn": case("EulerDiscreteScheduler", step={"s_churn": 1.0}),
    "Euler, churn": case("EulerDiscreteScheduler", step={"s_churn": 10.0}),
    "Euler, churn, v": case("EulerDiscreteScheduler", V, {"s_churn": 10.0}),
    "Heun, churn": flow_case("FlowMatchHeunDiscreteScheduler", {"s_churn": 10.0}, shift=3.0),
    "Heun, large churn": flow_case("FlowMatchHeunDiscreteScheduler", {"s_churn": 30.0}, shift=3.0),
    "KDPM2 ancestral": case("KDPM2AncestralDiscreteScheduler"),
    "LCM": case("LCMScheduler"),
    "TCD": case("TCDScheduler"),
    "TCD, eta 1": case("TCDScheduler", step={"eta": 1.0}),
    "UnCLIP": case("UnCLIPScheduler", **UNCLIPPED),
}
IN_FULL = {
    "CM": Case(diffusers.CMStochasticIterativeScheduler, "epsilon", set_timesteps={"num_inference_steps": 40}),
    "DPM SDE": case("DPMSolverMultistepScheduler", algorithm_type="sde-dpmsolver", final_sigmas_type="sigma_min"),
    "EDM DPM++ SDE": Case(partial(diffusers.EDMDPMSolverMultistepScheduler, algorithm_type=SDE), "edm"),
    "RePaint": Case(
        partial(diffusers.RePaintScheduler, eta=1.0, **UNCLIPPED),
        "epsilon",
        {"original_image": PICTURE, "mask": torch.zeros(1)},
        {"jump_n_sample": 1},
    ),
    "SCM": Case(
        diffusers.SCMScheduler, "flow_prediction", set_timesteps={"max_timesteps": 1.57, "intermediate_timesteps": None}
    ),
    "Wuerstchen": Case(diffusers.DDPMWuerstchenScheduler, "epsilon"),
}

CHURNED = {
    "EDM Euler, churn": Case(diffusers.EDMEulerScheduler, "edm", {"s_churn": 10.0}),
}


class Block(nn.Module):
    def forward(self, hidden_states: Tensor, text: Tensor, temb: Tensor, rope: Any = None) -> Tensor:
        return hidden_states


class WanTransformer3DModel(nn.Module, CacheMixin):  # the name of a known family
    """The exact model of `prediction`; `weights` are those of the next input."""

    def __init__(self, prediction: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.prediction, self.weights = prediction, (0.0, 1.0)

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, return_dict: bool = True
    ) -> tuple[Tensor]:
        latent = hidden_states
        for block in self.blocks:
            latent = block(latent, encoder_hidden_states, timestep)
        signal, noise = self.weights
        gain = signal * DEVIATION**2 / (signal**2 * DEVIATION**2 + noise**2)
        clean = PICTURE + gain * (latent - signal * PICTURE)
        white = (latent - signal * clean) / max(noise, 1e-4)
        if self.prediction == "edm":  # clean = skip raw + out output, raw = latent / scale, data of deviation 0.5
            sigma = noise / signal
            total = sigma**2 + 0.25
            return ((clean - 0.25 / total * total**0.5 * latent) / (0.5 * sigma / total**0.5),)
        outputs = {"flow_prediction": white - clean, "v_prediction": signal * white - noise * clean}
        return ((outputs | {"epsilon": white, "sample": clean})[self.prediction],)


def weights_of(scheduler: Any, timestep: Tensor, prediction: str) -> Weights:
    """The weights in the input at a step, from the scheduler's own table."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is None:
        if not hasattr(scheduler, "alphas_cumprod"):
            return 1 - float(timestep) / 1000, float(timestep) / 1000
        alpha = float(scheduler.alphas_cumprod[int(timestep)])
        return alpha**0.5, (1 - alpha) ** 0.5
    sigma = float(sigmas[scheduler.step_index or 0])
    if hasattr(scheduler, "sigmas_interpol") and not scheduler.state_in_first_order:
        sigma = float(scheduler.sigmas_interpol[scheduler.step_index - 1])
    if prediction == "flow_prediction":
        return 1 - sigma, sigma
    scale = (sigma**2 + (0.25 if prediction == "edm" else 1)) ** 0.5
    return 1 / scale, sigma / scale


@torch.no_grad()
def sample(case: Case, transformer: Any, scheduler: Any, seed: int = 0) -> Tensor:
    """Final samples of `DRAWS` draws, `(draws, ...)`."""
    scheduler.set_timesteps(**{"num_inference_steps": STEPS} | case.set_timesteps)
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(DRAWS, *PICTURE.shape[1:], generator=generator)
    latents = latents * float(getattr(scheduler, "init_noise_sigma", 1.0))
    text, older, more = torch.zeros(DRAWS, 1, 1), None, {"generator": generator, "return_dict": False} | case.step
    scale = getattr(scheduler, "scale_model_input", lambda latents, timestep: latents)
    last = isinstance(scheduler, diffusers.SCMScheduler | diffusers.DDPMWuerstchenScheduler)
    timesteps = scheduler.timesteps[: -1 if last else None]
    for index, timestep in enumerate(timesteps):
        transformer.weights = weights_of(scheduler, timestep, case.prediction)
        output = transformer(scale(latents, timestep), timestep.expand(DRAWS), text)[0]
        if isinstance(scheduler, diffusers.CogVideoXDPMScheduler):  # as its pipeline calls it
            before = timesteps[index - 1] if index else None
            latents, older = scheduler.step(output, older, timestep, before, latents, **more)
        else:
            given = timestep.expand(DRAWS) if isinstance(scheduler, diffusers.DDPMWuerstchenScheduler) else timestep
            if isinstance(scheduler, diffusers.UnCLIPScheduler):
                more["prev_timestep"] = timesteps[index + 1] if index + 1 < len(timesteps) else None
            latents = scheduler.step(output, given, latents, **more)[0]
    return latents


def rms_distance(samples: Tensor) -> Tensor:
    """Distance of each draw from the picture, `(draws,)`; that of the data is `DEVIATION`."""
    return (samples - PICTURE).square().flatten(1).mean(1).sqrt()


def run(case: Case, speedup: float = 2.0) -> tuple[Tensor, Tensor, Report]:
    """Samples of the plain and of the accelerated loop from the same draws, and the report."""
    scheduler = case.make()
    transformer = WanTransformer3DModel(case.prediction)
    plain = sample(case, transformer, scheduler)
    with galaxydit.accelerate(transformer, scheduler=scheduler, speedup=speedup) as acceleration:
        fast = sample(case, transformer, scheduler)
    return plain, fast, acceleration.report


def cases_of(cases: dict[str, Case]) -> list[Any]:
    return [pytest.param(case, id=name) for name, case in cases.items()]


def test_every_scheduler_whose_step_takes_a_generator_is_tried() -> None:
    found = {name for name, reason in LEFT_OUT.items() if "torchsde" in reason}
    for module in pkgutil.walk_packages(schedulers.__path__, schedulers.__name__ + "."):
        if module.name.endswith(("cosine_dpmsolver_multistep", "dpmsolver_sde")):
            continue  # they import torchsde
        for name, member in vars(importlib.import_module(module.name)).items():
            step = getattr(member, "step", None)
            if step is not None and "generator" in inspect.signature(step).parameters:
                found.add(name)
    tried = {type(case.make()).__name__ for case in (ACCELERATED | IN_FULL).values()}
    assert tried & set(LEFT_OUT) == set()
    assert tried | set(LEFT_OUT) == found


@pytest.mark.parametrize("case", cases_of(ACCELERATED))
def test_samples_at_2x_are_at_most_a_tenth_farther_from_the_data(case: Case) -> None:
    plain, fast, report = run(case)
    assert report.compute_fraction <= 0.55
    distances = torch.stack([rms_distance(plain), rms_distance(fast)])
    spread = ", ".join(f"{float(samples.std(0).mean()):.3f}" for samples in (plain, fast))
    means, errors = distances.mean(1), distances.std(1) / DRAWS**0.5
    assert errors.max() < 0.01 * means[0]
    assert means[1] <= 1.1 * means[0], f"standard deviation over the draws, plain and accelerated: {spread}"


@pytest.mark.parametrize("case", cases_of(IN_FULL))
def test_a_scheduler_whose_clean_prediction_is_not_known_is_computed_in_full_with_a_warning(case: Case) -> None:
    with pytest.warns(FullComputeWarning, match="the scheduler draws noise in every step, and .* computed in full"):
        plain, fast, report = run(case)
    assert torch.equal(fast, plain)
    assert {call.reason for call in report.calls} >= {Reason.DRAWN_NOISE}
    assert report.reused_steps == 0


@pytest.mark.parametrize("case", cases_of(CHURNED))
def test_noise_that_an_argument_of_step_asks_for_is_found_with_one_warning(case: Case) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FullComputeWarning)
        plain, fast, report = run(case)
    assert torch.equal(fast, plain)
    assert report.reused_steps == 0
    why = "the scheduler draws noise in every step, and the clean prediction of EDMEulerScheduler is not known"
    texts = [str(one.message) for one in caught if one.category is FullComputeWarning]
    assert [why in text for text in texts if "was asked for" not in text] == [True], texts
    assert [why in note for note in report.notes].count(True) == 1


@pytest.mark.parametrize("name", ["DDPM", "Euler ancestral", "DPM++ SDE, v"])
def test_latents_of_a_real_size_are_accelerated_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (1, 16, 9, 64, 64)
    monkeypatch.setattr(
        sys.modules[__name__], "PICTURE", torch.sin(torch.linspace(0, 60, math.prod(shape))).view(shape)
    )
    monkeypatch.setattr(sys.modules[__name__], "DRAWS", 1)
    plain, fast, report = run(ACCELERATED[name])
    assert report.compute_fraction <= 0.55
    assert float(rms_distance(fast)) <= 1.1 * float(rms_distance(plain))
