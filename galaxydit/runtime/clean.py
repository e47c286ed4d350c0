"""Convert outputs to the clean video that they predict, which does not belong to a step's drawn noise, and back."""

from torch import Tensor

from galaxydit.schedulers import Mix


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
