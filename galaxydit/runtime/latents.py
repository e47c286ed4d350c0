"""Compare what a transformer is given with what the scheduler's `step` returned, value by value, on the device."""

import functools
from dataclasses import dataclass, field

import torch
from torch import Tensor

SAMPLED = 4096  # values that are compared
SEARCHED = 64  # values with which the place of a window is searched
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
            self.kept = equal if self.kept is None else self.kept & equal
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
        rows = len(given)
        if rows % shape[0] == 0:
            given, rows = given[: shape[0]], shape[0]  # guidance in one batch repeats the rows
        given = given.detach()
        if given.shape == shape:
            values = sample(given)
            if returned.scaled is not None and returned.was_scaled is not None:
                return returned.was_scaled & (values == returned.scaled.to(given.dtype))
            return values == returned.values.to(given.dtype)
        if all(now >= before for now, before in zip(given.shape, shape, strict=True)):  # conditions are appended
            return self._equal_within(returned.values, shape, given, given.dtype, returned)
        if returned.whole is None or any(now > before for now, before in zip(given.shape, shape, strict=True)):
            return None
        values = sample(given)  # a window of the latent
        return self._equal_within(values, given.shape, returned.whole, given.dtype)

    def _equal_within(
        self, values: Tensor, shape: torch.Size, larger: Tensor, dtype: torch.dtype, scaled: Returned | None = None
    ) -> Tensor | None:
        """Whether the sampled `values` of a tensor of this shape stand in the larger one, at the place of the loop."""
        positions = positions_in(shape, larger.device)
        values = values.to(dtype)
        if self.place is None:
            self.place = place_of(values, positions, shape, larger)
        if self.place is None:
            return None
        found = larger[tuple(index + start for index, start in zip(positions, self.place, strict=True))].to(dtype)
        if scaled is not None and scaled.scaled is not None and scaled.was_scaled is not None:
            return scaled.was_scaled & (found == scaled.scaled.to(dtype))
        return found == values


def place_of(
    values: Tensor, positions: tuple[Tensor, ...], shape: torch.Size, larger: Tensor
) -> tuple[Tensor, ...] | None:
    """Where a tensor's sampled values stand in a larger one: the start on each axis, on the device; the first place
    with the most equal values. None if there are too many places."""
    spans = [many - few + 1 for many, few in zip(larger.shape, shape, strict=True)]
    if torch.Size(spans).numel() > MOST_PLACES:
        return None
    starts = torch.cartesian_prod(*(torch.arange(span, device=larger.device) for span in spans))
    starts = starts.view(-1, len(spans)).T[:, :, None]  # (axes, places, 1)
    few = values[:SEARCHED]
    found = larger[tuple(index[:SEARCHED] + start for index, start in zip(positions, starts, strict=True))]
    best = (found.to(few.dtype) == few).sum(1).argmax()
    return tuple(start[best, 0] for start in starts)


def sample(tensor: Tensor) -> Tensor:
    """At most `SAMPLED` values of a tensor, at positions that depend on its shape alone."""
    return tensor.detach().reshape(-1).index_select(0, flat_positions_in(tensor.shape, tensor.device))


@functools.lru_cache(maxsize=16)
def flat_positions_in(shape: torch.Size, device: torch.device) -> Tensor:
    """Indices of the sampled values in the flattened tensor."""
    count = min(SAMPLED, shape.numel())
    places = torch.arange(count, device=device)
    return places * STRIDE % shape.numel() if count < shape.numel() else places


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
