"""The predictions of a call: what computed steps leave behind for each sample, and what reused steps make of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from galaxydit.extrapolation import CachedStep, correction, predict, remember
from galaxydit.policies.config import GalaxyDiTConfig
from galaxydit.policies.policy import FEW_STEPS
from galaxydit.proxies import relative_l2
from galaxydit.runtime.call import Call
from galaxydit.runtime.samples import join_samples
from galaxydit.torch_compile import beside_the_model


def keep(call: Call, outputs: tuple[Tensor, ...], config: GalaxyDiTConfig, group: Any | None) -> str | None:
    """Store the output of a computed call, or its residual, and the error that a prediction would have had. Returns the
    reason if it cannot be stored, else None.

    Nothing reuses the last step, so it is not kept.
    """
    history, count = call.state.history, len(call.samples)
    if call.info.is_last or call.info.steps <= FEW_STEPS or config.history_length == 0:
        return None
    call.state.shapes[call.branch] = tuple(output.shape for output in outputs)
    if config.reuse == "output":
        tensor = _pack([output.detach() for output in outputs])
    elif call.residual is None:
        return "the block stack did not run as expected, so nothing of it is reused"
    else:
        tensor = call.residual
    if count > 1 and len(tensor) != len(call.latent):
        return "the samples of a batch cannot be told apart in the output, so it is computed in full"
    for place, sample in enumerate(call.samples):
        key = (call.branch, sample)
        kept = tensor if count == 1 else tensor[place::count].clone()
        if config.policy.learns_errors and history.get(key):
            call.state.errors[key] = float(relative_l2(kept, _predict_sample(call, place, config.order), group))
        computed = CachedStep(call.info.step, call.info.sigma, kept)
        history[key] = remember(history.get(key, ()), computed, config.history_length)
    return None


def full_steps_before(call: Call) -> list[int]:
    """For each sample its last full step, which the steps after it repeat or follow; the step itself without one."""
    histories = [call.state.history.get((call.branch, sample)) for sample in call.samples]
    return [history[-1].step if history else call.info.step for history in histories]


@beside_the_model
def correct(
    call: Call, outputs: tuple[Tensor, ...], predicted: tuple[Tensor, ...], shares: Sequence[float], order: int
) -> tuple[Tensor, ...]:
    """The outputs of a computed call, corrected by the samples' `shares` of the error of reuse; `predicted` is what
    reuse at `order` gives for this step.
    """
    count, computed, reused = len(call.samples), _pack(outputs), _pack(predicted)
    rows = []
    for place, share in enumerate(shares):
        known = len(call.state.history[call.branch, call.samples[place]]) - 1
        one = computed[place::count]
        rows.append(correction(one, reused[place::count], share, min(order, known)).add_(one) if share else one)
    return unpack(join_samples(rows), tuple(output.shape for output in outputs))


def predict_samples(call: Call, order: int) -> Tensor:
    """What reuse gives for the samples of a call, `(rows, ...)`."""
    return join_samples([_predict_sample(call, place, order) for place in range(len(call.samples))])


def _predict_sample(call: Call, place: int, order: int) -> Tensor:
    return predict(call.state.history[call.branch, call.samples[place]], call.info.sigma, order)


def tensors_of(output: Any) -> tuple[Tensor, ...]:
    """The predictions in an output: one, or two where a model denoises video and audio.

    A model returns a tensor, a tuple, or an output class of diffusers. The result is empty where it holds anything but
    tensors (None apart), because then it is not known how to predict it.
    """
    values = (output,) if isinstance(output, Tensor) else output
    if not isinstance(values, tuple):
        values = getattr(output, "to_tuple", tuple)()
    values = tuple(value for value in values if value is not None)
    return values if all(isinstance(value, Tensor) for value in values) else ()


def _pack(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of one tensor, or of several as `(batch, elements)`."""
    if len(tensors) == 1:
        return tensors[0].clone()
    return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)


def unpack(packed: Tensor, shapes: tuple[torch.Size, ...]) -> tuple[Tensor, ...]:
    """The tensors that were packed, of these shapes apart from the batch."""
    if len(shapes) < 2:
        return (packed,)
    parts = packed.split([shape[1:].numel() for shape in shapes], dim=1)
    return tuple(part.view(-1, *shape[1:]) for part, shape in zip(parts, shapes, strict=True))


def build_output(tensors: tuple[Tensor, ...], kind: type) -> Any:
    """The predictions as a transformer returns them: a tensor, a tuple, or an output class of diffusers."""
    if issubclass(kind, Tensor):
        return tensors[0]
    return tensors if kind is tuple else kind(*tensors)
