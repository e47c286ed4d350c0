"""Convert outputs to the clean video that they predict, which does not belong to a step's drawn noise, and back."""

from typing import Any, NamedTuple

from torch import Tensor

from galaxydit.schedulers import ROUNDING, kind_of, prediction_type, sigmas_in, values_of

SMALLEST = 1e-3  # weight of the clean video in an output below which it cannot be recovered


class Mix(NamedTuple):
    """Weights of a step: input = `signal` clean + `noise` white noise, output = `of_input` input + `of_clean` clean."""

    signal: float
    noise: float
    of_input: float
    of_clean: float


def mix_of(scheduler: Any | None, step: int) -> Mix | None:
    """The weights of a step by the scheduler's noise levels and prediction type; None where either is unknown."""
    weights = weights_of_input(scheduler, step)
    kind = prediction_type(scheduler)
    if weights is None or kind is None:
        return None
    signal, noise = weights
    if noise <= 0:
        return None
    # x = a x0 + s e, so e = (x - a x0) / s; v = a e - s x0 with a^2 + s^2 = 1; and e - x0 with a + s = 1.
    of_input, of_clean = {
        "epsilon": (1 / noise, -signal / noise),
        "v_prediction": (signal / noise, -1 / noise),
        "flow_prediction": (1 / noise, -1 / noise),
        "sample": (0.0, 1.0),
    }[kind]
    return None if abs(of_clean) < SMALLEST else Mix(signal, noise, of_input, of_clean)


def weights_of_input(scheduler: Any | None, step: int) -> tuple[float, float] | None:
    """Weights of clean video and white noise in the transformer's input at a step; None where they are unknown."""
    sigmas = sigmas_in(scheduler)
    alphas = getattr(scheduler, "alphas_cumprod", None)
    if sigmas is not None and step < len(sigmas):
        sigma = sigmas[step]
        between = getattr(scheduler, "sigmas_interpol", None)
        if between is not None and not getattr(scheduler, "state_in_first_order", True):
            sigma = values_of(between)[step - 1]  # second-order steps of KDPM2
        if kind_of(scheduler).is_flow:
            return (1 - sigma, sigma) if max(sigmas) <= 1 + ROUNDING else None
        if not isinstance(alphas, Tensor):
            return None
        # Inputs are scaled to unit variance, or kept there by the scheduler.
        scale = (1 + sigma**2) ** 0.5
        return 1 / scale, sigma / scale
    timesteps = getattr(scheduler, "timesteps", None)
    if not isinstance(alphas, Tensor) or not isinstance(timesteps, Tensor) or step >= len(timesteps):
        return None
    timestep = int(values_of(timesteps)[step])
    alpha = values_of(alphas)[min(timestep, len(alphas) - 1)]
    return alpha**0.5, (1 - alpha) ** 0.5


def to_clean(output: Tensor, latent: Tensor, mix: Mix) -> Tensor | None:
    """The clean video, float32, that an `output` predicts for the input `latent`; None if the shapes do not fit."""
    denoised = denoised_part(latent, output.shape)
    if denoised is None:
        return None
    # output = of_input input + of_clean clean
    return (output.float() - mix.of_input * denoised.float()) / mix.of_clean


def from_clean(clean: Tensor, latent: Tensor, mix: Mix) -> Tensor:
    """The output, in the dtype of `latent`, that predicts the video `clean` for the input `latent`."""
    denoised = denoised_part(latent, clean.shape)
    assert denoised is not None  # the clean prediction was made from a latent of the same shape
    return (mix.of_clean * clean + mix.of_input * denoised.float()).to(latent.dtype)


def denoised_part(latent: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The part of a latent that is denoised: without the channels of a given image, which diffusers appends."""
    if latent.ndim != len(shape):
        return None
    differing = [axis for axis in range(1, latent.ndim) if latent.shape[axis] != shape[axis]]
    if not differing:
        return latent
    axis = differing[0]
    if len(differing) > 1 or latent.shape[axis] < shape[axis]:
        return None
    return latent.narrow(axis, 0, shape[axis])
