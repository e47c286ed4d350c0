"""Convert outputs to the clean video that they predict, which does not belong to a step's drawn noise, and back."""

from typing import Any, NamedTuple

from torch import Tensor

from galaxydit.runtime.step import ROUNDING, StepInfo, sigmas_in, values_of

SMALLEST = 1e-3  # weight of the clean video in an output below which it cannot be recovered


class Mix(NamedTuple):
    """Weights of a step: input = `signal` clean + `noise` white noise, output = `of_input` input + `of_clean` clean."""

    signal: float
    noise: float
    of_input: float
    of_clean: float


def mix_of(scheduler: Any | None, info: StepInfo) -> Mix | None:
    """The weights of a step by the scheduler's noise levels and prediction type; None where either is unknown."""
    weights, kind = weights_of_input(scheduler, info), _prediction_type(scheduler)
    if weights is None or kind is None or weights[1] <= 0:
        return None
    signal, noise = weights
    # x = a x0 + s e, so e = (x - a x0) / s; v = a e - s x0 with a^2 + s^2 = 1; and e - x0 with a + s = 1.
    of_input, of_clean = {
        "epsilon": (1 / noise, -signal / noise),
        "v_prediction": (signal / noise, -1 / noise),
        "flow_prediction": (1 / noise, -1 / noise),
        "sample": (0.0, 1.0),
    }[kind]
    return None if abs(of_clean) < SMALLEST else Mix(signal, noise, of_input, of_clean)


def weights_of_input(scheduler: Any | None, info: StepInfo) -> tuple[float, float] | None:
    """Weights of clean video and white noise in the transformer's input at a step; None where they are unknown."""
    sigmas, table = sigmas_in(scheduler), getattr(scheduler, "alphas_cumprod", None)
    if sigmas is not None and info.step < len(sigmas):
        sigma, between = sigmas[info.step], getattr(scheduler, "sigmas_interpol", None)
        if between is not None and not getattr(scheduler, "state_in_first_order", True):
            sigma = values_of(between)[info.step - 1]  # second-order steps of KDPM2
        if _is_flow(scheduler):
            return (1 - sigma, sigma) if max(sigmas) <= 1 + ROUNDING else None
        # Inputs are scaled to unit variance, or kept there by the scheduler.
        scale = (1 + sigma**2) ** 0.5
        return (1 / scale, sigma / scale) if isinstance(table, Tensor) else None
    timesteps = getattr(scheduler, "timesteps", None)
    if not isinstance(table, Tensor) or not isinstance(timesteps, Tensor) or info.step >= len(timesteps):
        return None
    alpha = values_of(table)[min(int(values_of(timesteps)[info.step]), len(table) - 1)]
    return alpha**0.5, (1 - alpha) ** 0.5


def to_clean(output: Tensor, latent: Tensor, mix: Mix) -> Tensor | None:
    """The clean video, float32, that an `output` predicts for the input `latent`; None if the shapes do not fit."""
    own = denoised_part(latent, output.shape)
    return None if own is None else (output.float() - mix.of_input * own.float()) / mix.of_clean


def from_clean(clean: Tensor, latent: Tensor, mix: Mix) -> Tensor:
    """The output, in the dtype of `latent`, that predicts the video `clean` for the input `latent`."""
    own = denoised_part(latent, clean.shape)
    assert own is not None  # the clean prediction was made from a latent of the same shape
    return (mix.of_clean * clean + mix.of_input * own.float()).to(latent.dtype)


def denoised_part(latent: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The part of a latent that is denoised: without the channels of a given image, which diffusers appends."""
    if latent.ndim != len(shape):
        return None
    larger = [axis for axis in range(1, latent.ndim) if latent.shape[axis] != shape[axis]]
    if len(larger) > 1 or any(latent.shape[axis] < shape[axis] for axis in larger):
        return None
    return latent.narrow(larger[0], 0, shape[larger[0]]) if larger else latent


def _is_flow(scheduler: Any) -> bool:
    name = type(scheduler).__name__
    is_flow = bool(getattr(getattr(scheduler, "config", None), "use_flow_sigmas", False))
    return is_flow or name.startswith(("FlowMatch", "FlowMap")) or "RFScheduler" in name


def _prediction_type(scheduler: Any) -> str | None:
    config = getattr(scheduler, "config", None)
    kind = getattr(config, "prediction_type", None)
    if getattr(config, "algorithm_type", None) == "sde-dpmsolver":
        return None  # its second order, unlike that of DPM-Solver++, multiplies errors where little noise is left
    if _is_flow(scheduler):
        return "flow_prediction" if kind in (None, "flow_prediction") else None
    return kind if kind in ("epsilon", "v_prediction", "sample") else None
