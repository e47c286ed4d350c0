"""Store tensors of full steps, predict those of reused steps, and correct full steps (`galaxydit.extrapolation`).
Several output tensors are packed: flattened and joined to one tensor.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import token_group
from galaxydit.errors import ExtrapolationWarning, FullComputeWarning
from galaxydit.extrapolation import CachedStep, Reuse, correction, predict
from galaxydit.proxies import relative_l2
from galaxydit.runtime.clean import from_clean, to_clean
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.outputs import pack, tensors_of, unpack
from galaxydit.runtime.rows import join_samples
from galaxydit.runtime.streams import WHOLE, Part, join, parts_of
from galaxydit.runtime.work import Work
from galaxydit.schedulers import Noise
from galaxydit.torch_compile import around_the_model, beside_the_model


class Warn(Protocol):
    """Warn of a text, and note it in the report of a generation."""

    def __call__(self, text: str, of: Generation, kind: type[Warning] = FullComputeWarning) -> None: ...


SHARED_RESIDUAL = (
    "picture and sound have noise levels of their own, and the residual of the blocks holds both, so reused steps "
    'repeat it instead of following its slope; reuse="output" predicts each by its own noise levels'
)
OTHER_OUTPUTS = (
    "the transformer returned another number of outputs than its family has streams, so it is computed in full"
)


class StepReuse:
    """Stores full steps of one transformer, and predicts and corrects from them.

    Attributes:
        custom: the user's `Reuse`, else the base class, which keeps nothing beside the tensor.
        runs_forward: whether reused steps run embedding and output head around the predicted residual of the blocks;
            otherwise they leave the forward pass as soon as they are decided, and the output is predicted.
    """

    def __init__(self, transformer: nn.Module, config: GalaxyDiTConfig, warn: Warn) -> None:
        self._transformer = transformer
        self._config = config
        self._warn = warn
        self._is_custom = isinstance(config.reuse, Reuse)
        self.custom = config.reuse if isinstance(config.reuse, Reuse) else Reuse()
        self.runs_forward = config.predicts == "residual"

    # Reused steps

    @beside_the_model
    def predict(self, work: Work) -> Tensor:
        """The predicted tensor `(rows, ...)`: the output, packed to `(rows, elements)` if several, or the residual."""
        tensors = [self._predict(work, video) for video in work.videos]
        return join_samples(tensors)

    def _predict(self, work: Work, video: int) -> Tensor:
        history = work.history.steps[work.call.branch, video]
        if self._is_custom:
            return self.custom.predict(work.call, history)
        order = self._order(work)
        predicted = [self._predict_part(work, history, order, part) for part in self._parts(work)]
        return join(predicted)

    def _predict_part(self, work: Work, history: tuple[CachedStep, ...], order: int, part: Part) -> Tensor:
        config, sigma = self._config, part.sigma(work.call.info)
        return predict(part.history(history), sigma, order, config.slope, config.largest_ahead)

    def _order(self, work: Work) -> int:
        if self.runs_forward and len(work.generation.clocks) > 1:
            self._warn(SHARED_RESIDUAL, work.generation, ExtrapolationWarning)
            return 0
        return work.generation.order

    def _parts(self, work: Work) -> tuple[Part, ...]:
        """The parts of what is stored: each output stream, or the residual as a whole."""
        if self.runs_forward:
            return WHOLE
        return parts_of(work.generation.clocks, work.history.shapes.get(work.call.branch, ()))

    @beside_the_model
    def outputs(self, work: Work) -> tuple[Tensor, ...]:
        """The predicted outputs, one tensor for each that the transformer returns; for output reuse only."""
        predicted = self.predict(work)
        if work.mix is not None:
            return (from_clean(predicted, work.call.latent, work.mix),)
        return unpack(predicted, work.history.shapes.get(work.call.branch, ()))

    # Full steps

    @beside_the_model
    def store(self, work: Work, outputs: tuple[Tensor, ...]) -> None:
        """Keep the tensor of a full step, except the last, which no step reuses."""
        if not outputs:
            self._warn("the transformer returned more than tensors, so it is computed in full", work.generation)
            return
        if self._config.history_length == 0:
            return
        streams = len(work.generation.clocks)
        if streams > 1 and len(outputs) not in (1, streams):
            self._warn(OTHER_OUTPUTS, work.generation)
            return
        if work.mix is not None:
            clean = None
            if len(outputs) == 1:
                clean = to_clean(outputs[0], work.call.latent, work.mix)
            if clean is not None:
                outputs = (clean,)
            elif work.generation.noise is Noise.POSSIBLE:
                # The scheduler draws noise only if its step is told to, so outputs may be reused as they are.
                work.generation.reuses_clean = False
                work.mix = None
            else:
                work.generation.cannot_reuse = "the output of this model does not have the shape of its latent"
                return
        if not work.call.info.is_last:
            self._keep(work, outputs)

    def _keep(self, work: Work, outputs: tuple[Tensor, ...]) -> None:
        call, history = work.call, work.history
        history.shapes[call.branch] = tuple(output.shape for output in outputs)
        tensor = work.residual
        if not self.runs_forward:
            tensor = pack([output.detach() for output in outputs])
        if tensor is None:
            self._warn("the block stack did not run as expected, so nothing of it is reused", work.generation)
            return
        count = len(work.videos)
        if count > 1 and len(tensor) != len(call.latent):
            text = "the samples of a batch cannot be told apart in the output, so it is computed in full"
            self._warn(text, work.generation)
            return
        for place, video in enumerate(work.videos):
            rows = tensor
            if count > 1:
                rows = tensor[place::count].clone()  # a view would keep the whole batch in memory
            self._keep_video(work, video, rows)
        history.was_guided = call.is_guided

    def _keep_video(self, work: Work, video: int, rows: Tensor) -> None:
        call, history = work.call, work.history
        key = (call.branch, video)
        past = history.steps.get(key, ())
        if past and past[-1].tensor.shape != rows.shape:
            past = ()
        if self._config.policy.learns_errors and past:
            history.errors[key] = self._error(work, rows, self._predict(work, video))
        measured = self.custom.measure(call, rows, past)
        step = CachedStep(call.info.step, call.info.sigma, rows, self.custom.side(call), measured)
        steps = (*past, step)
        history.steps[key] = steps[-self._config.history_length :]
        # Corrections count the steps that were reused since this one.
        history.missed.pop(key, None)

    def _error(self, work: Work, rows: Tensor, predicted: Tensor) -> Tensor:
        """The relative error of a prediction: that of the stream with the largest one."""
        group = token_group(self._transformer)
        errors = [relative_l2(part.of(rows), part.of(predicted), group) for part in self._parts(work)]
        return errors[0] if len(errors) == 1 else torch.stack(errors).amax(dim=0)

    # Corrections

    @around_the_model
    def correct(
        self, work: Work, outputs: tuple[Tensor, ...], weights: list[tuple[float, ...]], forward: Callable[[], Any]
    ) -> tuple[Tensor, ...]:
        """A full step's outputs plus their correction, in the same shapes."""
        if not self.runs_forward:
            return self._corrected(work, outputs, self.outputs(work), weights)
        outputs = tuple(output.clone() for output in outputs)  # a CUDA graph may write its next output there
        work.is_repeated = True
        try:
            return self._corrected(work, outputs, tensors_of(forward()), weights)
        finally:
            work.is_repeated = False

    @beside_the_model
    def _corrected(
        self, work: Work, outputs: tuple[Tensor, ...], reused: tuple[Tensor, ...], weights: list[tuple[float, ...]]
    ) -> tuple[Tensor, ...]:
        computed = pack(outputs)
        predicted = pack(reused)
        count = len(work.videos)
        shapes = tuple(output.shape for output in outputs)
        parts = parts_of(work.generation.clocks, shapes)
        videos = []
        for place, weights_of_parts in enumerate(weights):
            rows, rows_predicted = computed[place::count], predicted[place::count]
            if any(weights_of_parts):
                corrected = []
                # Outputs that were joined have one part, which takes the first weight.
                for part, weight in zip(parts, weights_of_parts, strict=False):
                    corrected.append(self._correct_part(work, place, part, weight, rows, rows_predicted))
                rows = join(corrected)
            videos.append(rows)
        return unpack(join_samples(videos), shapes)

    def _correct_part(
        self, work: Work, place: int, part: Part, weight: float, rows: Tensor, predicted: Tensor
    ) -> Tensor:
        computed = part.of(rows)
        if not weight:
            return computed
        video = work.videos[place]
        known = len(work.history.steps[work.call.branch, video])
        order = min(self._order(work), known - 1)
        added = correction(computed, part.of(predicted), weight, order, self._config.correction_share)
        return added.add_(computed)
