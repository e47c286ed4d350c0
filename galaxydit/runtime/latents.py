"""Compare what a transformer is given with what the scheduler's `step` returned, value by value, on the device."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

SAMPLED = 4096  # values that are compared
SEARCHED = 64  # values with which the place of a window is searched
EARLY = 2  # first steps, which teach where the latent stands in the transformer's input
MOST_PLACES = 4096  # of a window; with more, its place is unknown
STRIDE = 1_000_003  # a prime, so that the sampled values are spread over all axes


class HostCopy:
    """A small tensor's copy in host memory, which the device makes when it reaches it."""

    def __init__(self, tensor: Tensor) -> None:
        self._copied: torch.cuda.Event | None = None
        self._tensor = tensor
        if tensor.is_cuda:
            self._tensor = tensor.to("cpu", non_blocking=True)  # into pinned memory
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def tensor(self) -> Tensor:
        """The copy; waits until it is made. On a device other than CUDA's, reading it waits for the queue."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._tensor


class Returned:
    """A latent that `step` returned: its values at fixed positions, or all of them if windows of it are called."""

    def __init__(self, latent: Tensor, *, is_whole: bool) -> None:
        self.shape = latent.shape
        self.device = latent.device
        self.whole: Tensor | None = latent.detach().clone() if is_whole else None
        self.values = sample(latent)
        self.scaled: Tensor | None = None  # what `scale_model_input` made of the values
        self.was_scaled: Tensor | None = None  # for each position, whether it was this value that was scaled

    def equal(self, values: Tensor) -> Tensor:
        """For each position, whether a later latent has the returned value, or what was made of it."""
        if self.scaled is not None and self.was_scaled is not None:
            return self.was_scaled & (values == self.scaled.to(values.dtype))
        return values == self.values.to(values.dtype)

    def scale(self, given: Tensor, scaled: Tensor) -> None:
        if not _is_alike(given, self.shape) or not _is_alike(scaled, self.shape):
            return
        self.was_scaled = sample(given[: self.shape[0]]) == self.values.to(given.dtype)
        self.scaled = sample(scaled[: self.shape[0]])


@dataclass
class LatentComparison:
    """How the input of one window relates to one scheduler's latents; it stays the same during a loop.

    Attributes:
        place: where the smaller tensor lies in the larger one, for each axis, on the device; None until it is searched.
        kept: positions that were carried over in the first two steps, in all branches: where the input is more than the
            latent, condition frames and masks are not.
        first: how many positions were equal at first.
        shapes: of the latent and of the input.
    """

    place: tuple[Tensor, ...] | None = None
    kept: Tensor | None = None
    first: Tensor | None = None
    shapes: tuple[torch.Size, ...] = field(default=())

    def counts(self, returned: Returned, given: Tensor, *, is_early: bool) -> Tensor:
        """On the device, `(2,)`: how many positions were compared, and how many are equal. None compared is unknown."""
        shapes = returned.shape, given.shape[1:]
        if self.shapes and self.shapes != shapes:
            return torch.tensor([1, 0], device=given.device)  # it was resized
        self.shapes = shapes
        equal = self._equal(returned, given)
        if equal is None:
            return torch.zeros(2, dtype=torch.long, device=given.device)
        if self.first is None:
            self.first = equal.sum()
        if self.kept is None or (is_early and len(self.kept) == len(equal)):
            if self.kept is not None:
                equal = self.kept & equal
            self.kept = equal
        elif len(self.kept) != len(equal):
            return torch.zeros(2, dtype=torch.long, device=given.device)
        # An input that could be compared at first, and of which no position is left, is of other latents.
        least = self.first.clamp(max=1)
        return torch.stack([torch.maximum(self.kept.sum(), least), (equal & self.kept).sum()])

    def _equal(self, returned: Returned, given: Tensor) -> Tensor | None:
        """For each position, whether the input has the latent's value; None if the shapes do not allow it."""
        shape = _with_axis(returned.shape, given.shape)
        if given.ndim != len(shape) or given.device != returned.device:
            return None
        if len(given) % shape[0] == 0:
            given = given[: shape[0]]  # guidance in one batch repeats the rows
        given = given.detach()
        if given.shape == shape:
            return returned.equal(sample(given))
        if _fits_in(shape, given.shape):  # conditions are appended
            values = self._values_within(given, shape, returned.values.to(given.dtype))
            return None if values is None else returned.equal(values)
        if returned.whole is None or not _fits_in(given.shape, shape):
            return None
        values = sample(given)  # a window of the latent
        expected = self._values_within(returned.whole, given.shape, values)
        return None if expected is None else expected.to(given.dtype) == values

    def _values_within(self, larger: Tensor, shape: torch.Size, values: Tensor) -> Tensor | None:
        """Sampled values of the part of this shape that stands in the larger tensor at the place of the loop. The place
        is searched with the part's expected `values`; None if there are too many places."""
        positions = positions_in(shape, larger.device)
        if self.place is None:
            self.place = place_of(values, positions, shape, larger)
        if self.place is None:
            return None
        return larger[_moved(positions, self.place)]


def place_of(
    values: Tensor, positions: tuple[Tensor, ...], shape: torch.Size, larger: Tensor
) -> tuple[Tensor, ...] | None:
    """Where a tensor's sampled values stand in a larger one: the start on each axis, on the device; the first place
    with the most equal values. None if there are too many places."""
    spans = [many - few + 1 for many, few in zip(larger.shape, shape, strict=True)]
    if torch.Size(spans).numel() > MOST_PLACES:
        return None
    by_axis = [torch.arange(span, device=larger.device) for span in spans]
    starts = torch.cartesian_prod(*by_axis).view(-1, len(spans)).T[:, :, None]  # (axes, places, 1)
    few = values[:SEARCHED]
    few_positions = [index[:SEARCHED] for index in positions]
    at_places = larger[_moved(few_positions, starts)]  # (places, values)
    best = (at_places.to(few.dtype) == few).sum(1).argmax()
    return tuple(start[best, 0] for start in starts)


def _moved(positions: Sequence[Tensor], starts: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Positions from these starts on, an index for each axis."""
    return tuple(index + start for index, start in zip(positions, starts, strict=True))


def _fits_in(shape: Sequence[int], larger: Sequence[int]) -> bool:
    return all(few <= many for few, many in zip(shape, larger, strict=True))


def sample(tensor: Tensor) -> Tensor:
    """At most `SAMPLED` values of a tensor, at positions that depend on its shape alone."""
    return tensor.detach().reshape(-1).index_select(0, flat_positions_in(tensor.shape, tensor.device))


@functools.lru_cache(maxsize=16)
def flat_positions_in(shape: torch.Size, device: torch.device) -> Tensor:
    """Indices of the sampled values in the flattened tensor."""
    count = min(SAMPLED, shape.numel())
    positions = torch.arange(count, device=device)
    if count < shape.numel():
        positions = positions * STRIDE % shape.numel()
    return positions


@functools.lru_cache(maxsize=16)
def positions_in(shape: torch.Size, device: torch.device) -> tuple[Tensor, ...]:
    """The same indices, one tensor for each axis."""
    return torch.unravel_index(flat_positions_in(shape, device), shape)


def _with_axis(shape: torch.Size, given: torch.Size) -> torch.Size:
    """The shape of a latent, with an axis of one frame where single frames of a video are stepped."""
    if len(given) == len(shape) + 1:
        for axis in range(1, len(given)):
            if given[1:axis] + given[axis + 1 :] == shape[1:]:
                return torch.Size((*shape[:axis], 1, *shape[axis:]))
    return shape


def _is_alike(tensor: Tensor, shape: torch.Size) -> bool:
    return tensor.ndim == len(shape) and tensor.shape[1:] == shape[1:] and len(tensor) % shape[0] == 0
