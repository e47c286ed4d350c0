"""Convert outputs to the clean video that they predict, which does not belong to a step's drawn noise, and back."""

from torch import Tensor

from galaxydit.schedulers import Mix


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
