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
        self._transformer, self._family, self._session = transformer, family, session
        # Of an unknown family it is not known which rows are branches of one video.
        self._may_divide = family.class_name in FAMILIES and not whole_batches

    def _joins_branches(self) -> bool:
        """Whether a batch may hold several branches. Without guidance, equal latents are those of prompts with the same
        seed."""
        source = self._session.source
        return self._family.branches == CONCATENATED and (not source.may_be_running or may_be_guided(source.pipe))

    def divide(self, work: Work) -> None:
        """Set `videos` and `is_divisible` of a call whose policy reads a proxy."""
        latent, history, config = work.call.latent, work.history, work.generation.config
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
        previous, latent = work.history.proxies.get(work.scope), work.call.latent
        if previous is None or previous.shape != current.shape:
            return None
        distances = distance_of(work.generation.config.watched, current, previous, token_group(self._transformer))
        count = len(work.videos)
        if len(distances) % len(latent):
            return distances.max().expand(count)
        rows = distances.view(len(latent), -1).amax(dim=1).view(-1, count)
        if len(rows) == 1 or len(latent) % 2 or not self._joins_branches():
            return rows.amax(dim=0)
        # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
        first, second = latent.chunk(2)
        is_guided = (first == second).all().to(rows.device)
        return torch.where(is_guided, rows[len(rows) // 2 :].amax(dim=0), rows.amax(dim=0))


def read(distances: Tensor | None, errors: Mapping[Key, Tensor]) -> tuple[tuple[float, ...], dict[Key, float]]:
    """The values of both, for which the host waits once; no distances for None."""
    parts = [] if distances is None else [distances]
    parts += [error.to(parts[0].device if parts else error.device).reshape(1) for error in errors.values()]
    values = torch.cat(parts).tolist() if parts else []
    count = len(values) - len(errors)
    return tuple(values[:count]), dict(zip(errors, values[count:], strict=True))


@beside_the_model
def split(work: Work) -> list[tuple[Work, list[int]]]:
    """The part of the computed videos and that of the reused videos of a batch, with the batch rows of each."""
    parts, count = [], len(work.call.latent)
    for is_reused in (False, True):
        places = [place for place, decision in enumerate(work.decisions) if decision.reuse is is_reused]
        rows = rows_of(places, len(work.videos), count)
        part = replace(
            work,
            call=replace(work.call, latent=take_rows(work.call.latent, rows, count)),
            videos=tuple(work.videos[place] for place in places),
            decisions=tuple(work.decisions[place] for place in places),
            distances=tuple(work.distances[place] for place in places) if work.distances else (),
            first_output=None if is_reused else take_rows(work.first_output, rows, count),
            block_input=None,
            residual=None,
            parts=[],
        )
        parts.append((part, rows))
    work.parts, work.first_output = [part for part, _ in parts], None
    return parts
