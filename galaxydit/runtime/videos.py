"""Divide the batch of a call into videos with decisions of their own. A place is a position in `Work.videos`."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from galaxydit.context_parallel import token_group
from galaxydit.families import CONCATENATED, FAMILIES, Family
from galaxydit.proxies import distance_of
from galaxydit.runtime.guidance import may_be_guided
from galaxydit.runtime.history import Key
from galaxydit.runtime.rows import are_divisible, rows_of, sample_count, take_rows
from galaxydit.runtime.session import Session
from galaxydit.runtime.work import Work
from galaxydit.torch_compile import beside_the_model

INDIVISIBLE = (
    "it is not known how to divide the inputs of this model among the samples of a batch, so a step that one sample "
    "needs is computed for all"
)


class Videos:
    """Divides the batches of one transformer; with `whole_batches`, one decision serves all videos."""

    def __init__(self, transformer: nn.Module, family: Family, session: Session, *, whole_batches: bool) -> None:
        self._transformer = transformer
        self._family = family
        self._session = session
        # Of an unknown family it is not known which rows are branches of one video.
        self._may_divide = family.class_name in FAMILIES and not whole_batches

    def _joins_branches(self) -> bool:
        """Whether a batch may hold several branches. Without guidance, equal latents are those of prompts with the same
        seed."""
        source = self._session.source
        return self._family.branches == CONCATENATED and (not source.may_be_running or may_be_guided(source.pipe))

    def divide(self, work: Work) -> None:
        """Set `videos` and `is_divisible` of a call whose policy reads a proxy."""
        latent = work.call.latent
        history = work.history
        config = work.generation.config
        # A user's own `Reuse` decides for the whole batch.
        if config.per_sample and self._may_divide and isinstance(config.reuse, str):
            if not history.videos:
                history.videos = sample_count(latent) if self._joins_branches() else len(latent)
            if len(latent) % history.videos == 0:
                work.videos = tuple(range(history.videos))
        work.is_divisible = len(work.videos) == 1 or are_divisible(work.call.inputs, len(latent))
        if not work.is_divisible:
            self._session.warn_and_note(INDIVISIBLE, of=work.generation)

    def distances(self, work: Work, current: Tensor) -> Tensor | None:
        """For each video, the largest distance of the proxy among its (conditional) rows, on the device; where one
        decision serves the batch, among all rows. None without a previous tensor of the same shape."""
        latent = work.call.latent
        previous = work.history.proxies.get(work.scope)
        if previous is None or previous.shape != current.shape:
            return None
        distances = distance_of(work.generation.config.watched, current, previous, token_group(self._transformer))
        count = len(work.videos)
        if len(distances) % len(latent):
            return distances.max().expand(count)
        of_rows = distances.view(len(latent), -1).amax(dim=1)
        by_branch = of_rows.view(-1, count)
        largest = by_branch.amax(dim=0)
        if len(by_branch) == 1 or len(latent) % 2 or not self._joins_branches():
            return largest
        # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
        first, second = latent.chunk(2)
        is_guided = (first == second).all().to(by_branch.device)
        conditional = by_branch[len(by_branch) // 2 :]
        return torch.where(is_guided, conditional.amax(dim=0), largest)


def read(distances: Tensor | None, errors: Mapping[Key, Tensor]) -> tuple[tuple[float, ...], dict[Key, float]]:
    """The values of both, for which the host waits once; no distances for None."""
    parts: list[Tensor] = []
    if distances is not None:
        parts.append(distances)
    for error in errors.values():
        device = parts[0].device if parts else error.device  # a proxy may lie on another GPU
        parts.append(error.to(device).reshape(1))
    if not parts:
        return (), {}
    values = torch.cat(parts).tolist()
    count = len(values) - len(errors)
    return tuple(values[:count]), dict(zip(errors, values[count:], strict=True))


@beside_the_model
def split(work: Work) -> list[tuple[Work, list[int]]]:
    """The part of the computed videos and that of the reused videos of a batch, with the batch rows of each."""
    parts = []
    for is_reused in (False, True):
        places = [place for place, decision in enumerate(work.decisions) if decision.reuse is is_reused]
        rows = rows_of(places, len(work.videos), len(work.call.latent))
        parts.append((_part(work, places, rows, is_reused=is_reused), rows))
    work.parts = [part for part, _ in parts]
    work.first_output = None
    return parts


def _part(work: Work, places: list[int], rows: list[int], *, is_reused: bool) -> Work:
    """The videos at these places of a batch; `rows` are theirs."""
    count = len(work.call.latent)
    latent = take_rows(work.call.latent, rows, count)
    first_output = None
    if not is_reused:
        first_output = take_rows(work.first_output, rows, count)
    distances: tuple[float, ...] = ()
    if work.distances:
        distances = tuple(work.distances[place] for place in places)
    return replace(
        work,
        call=replace(work.call, latent=latent),
        videos=tuple(work.videos[place] for place in places),
        decisions=tuple(work.decisions[place] for place in places),
        distances=distances,
        first_output=first_output,
        block_input=None,
        residual=None,
        parts=[],
    )
