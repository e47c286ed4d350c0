"""Options of commands that make many units: where they are made."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from galaxydit.commands.options import load_quietly
from galaxydit.pipelines.settings import Offload

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.pipelines.runs import Executor

ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+")

Ray = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="Work on Ray: alone it starts a cluster on this machine; auto, ray://host:port or host:port join one.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Workers of the cluster; by default one for each GPU. Needs --ray.")
]
GpusPerWorker = Annotated[
    int | None,
    typer.Option(min=0, help="GPUs that share one video (context parallel); by default one. Needs --ray."),
]


class RayCommand(TyperCommand):
    """A command whose --ray may stand without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put "local" behind a --ray that no address follows."""
        given: list[str] = []
        for index, argument in enumerate(args):
            given.append(argument)
            if argument == "--ray" and not ADDRESS.fullmatch("".join(args[index + 1 : index + 2])):
                given.append("local")
        return super().parse_args(ctx, given)


def check_ray_options(ray: str | None, workers: int | None, gpus_per_worker: int | None) -> None:
    """Raise typer.BadParameter for options that need --ray without it."""
    for name, value in (("--workers", workers), ("--gpus-per-worker", gpus_per_worker)):
        if ray is None and value is not None:
            raise typer.BadParameter(f"{name}={value} has no effect without --ray: add --ray, or leave it out")


def chosen_executor(
    ray: str | None, workers: int | None, gpus_per_worker: int | None
) -> "AbstractContextManager[Executor]":
    """The executor that the options, from `check_ray_options`, ask for."""
    from galaxydit.pipelines.runs import InProcess, OnRay

    return nullcontext(InProcess()) if ray is None else OnRay(ray, workers, gpus_per_worker)


def load_for(
    ray: str | None, model: str, revision: str | None, offload: Offload
) -> "tuple[DiffusionPipeline, Callable[[], DiffusionPipeline] | None]":
    """The pipeline, and on Ray, whose workers have the GPUs, what loads it there: here it is only read then."""
    if ray is None:
        return load_quietly(model, revision, None, offload), None
    from galaxydit.pipelines.loading import load_pipeline

    return load_quietly(model, revision, "cpu"), partial(load_pipeline, model, revision=revision, offload=offload)
