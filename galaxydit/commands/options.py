"""Options that several commands share; `grouping.grouped` turns each field of these dataclasses into an option."""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from galaxydit.commands.captions import WITH_CAPTIONS
from galaxydit.commands.console import say
from galaxydit.errors import did_you_mean, refusal
from galaxydit.pipelines.inputs import merge_inputs
from galaxydit.pipelines.model_names import check_model
from galaxydit.pipelines.settings import DtypeName, GenerationSettings, Offload
from galaxydit.plugins import load_plugin
from galaxydit.request import AUTO
from galaxydit.request import Request as CoreRequest

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.pipelines.runs import Executor

MODEL_HELP = "wan-tiny, a published model such as wan2.1-t2v-1.3b, a folder, a hub id, or a .safetensors or .gguf file."
ModelName = Annotated[str, typer.Option(help=MODEL_HELP)]
RAY_HELP = "Work on Ray: alone it starts a cluster here; auto, ray://host:port or host:port join one."
LARGEST_SEED = 2**64 - 1  # of torch.Generator
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the initial noise.")]
Quality = Annotated[
    str | None, typer.Option(help="Instead of --speedup: lossless (1), high (1.5), balanced (2) or fast (3).")
]
RunPath = Annotated[str, typer.Argument(metavar="RUN", help="The --out of a `galaxydit eval run`.")]
Record = Annotated[
    Path | None,
    typer.Option(
        help="Record the first plain video that is made, for `calibrate --recorded`, which checks its own recordings "
        "by it. Nothing is planned from it, because 16 bits hide how little outputs change. Its seconds are not kept."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that galaxydit did not write, or that were changed since.")
]
MixedVersions = Annotated[
    bool, typer.Option("--allow-mixed-versions", help="Go on where finished videos were made by other versions.")
]


@dataclass(frozen=True)
class PluginOptions:
    """Plugins, which are loaded before the other options are read. Raises GalaxyDiTError for one that cannot be."""

    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE_OR_FILE",
            help="Load a module, or a .py file, with methods, proxies or families of your own. May be given several "
            "times.",
        ),
    ] = None

    def __post_init__(self) -> None:
        for each in self.plugin or ():
            load_plugin(each)


@dataclass(frozen=True)
class ModelOptions:
    """Options of a model. Raises GalaxyDiTError or FileNotFoundError if `model` names none."""

    section: ClassVar = "Model"

    model: ModelName
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None
    offload: Annotated[
        Offload, typer.Option(help="For small GPUs: weights stay in CPU memory; sequential needs the least memory.")
    ] = "none"
    dtype: Annotated[DtypeName | None, typer.Option(help="By default what the authors recommend.")] = None
    base: Annotated[str | None, typer.Option(help="Of a single file: the model that has all other parts.")] = None
    lora: Annotated[str | None, typer.Option(help="A LoRA to load: a file, a folder or a hub id.")] = None
    lora_2: Annotated[
        str | None, typer.Option(help="The LoRA of a second transformer, as of Wan2.2-A14B; by default --lora.")
    ] = None
    compile: Annotated[bool, typer.Option("--compile", help="torch.compile the blocks: slow first video.")] = False
    attention: Annotated[str | None, typer.Option(help="An attention backend of diffusers, such as sage.")] = None

    def __post_init__(self) -> None:
        check_model(self.model, self.base)

    def load(self, device: str | None = None) -> "DiffusionPipeline":
        """The pipeline on `device`, by default the GPU, without progress bars, because commands show their own."""
        import torch

        from galaxydit.pipelines.loading import load_pipeline
        from galaxydit.pipelines.loading_bars import without_loading_bars
        from galaxydit.pipelines.modular import hide_progress

        dtype = self.dtype and getattr(torch, self.dtype)
        options = {name: value for name, value in vars(self).items() if name not in ("model", "dtype")}
        with without_loading_bars():
            pipe = load_pipeline(self.model, dtype=dtype, device=device, **options)
        hide_progress(pipe)
        return pipe


@dataclass(frozen=True)
class WanTinyByDefault(ModelOptions):
    """Options of how a model is loaded, by default wan-tiny, the small Wan model in this package."""

    model: ModelName = WITH_CAPTIONS


@dataclass(frozen=True)
class Sizes:
    """Options of a generation; None takes the authors' recipe. Raises GalaxyDiTError for impossible ones."""

    section: ClassVar = "Size and steps"

    height: Annotated[int | None, typer.Option(min=1, help="Pixels.")] = None
    width: Annotated[int | None, typer.Option(min=1, help="Pixels.")] = None
    num_frames: Annotated[int | None, typer.Option("--frames", min=1, help="Number of frames.")] = None
    steps: Annotated[int | None, typer.Option(min=1, help="Denoising steps.")] = None
    guidance_scale: Annotated[float | None, typer.Option("--guidance", min=0, help="Guidance scale.")] = None
    flow_shift: Annotated[float | None, typer.Option(help="Bends sigmas towards noise.")] = None
    negative_prompt: Annotated[str | None, typer.Option(help='What to avoid; "" for nothing.')] = None

    def __post_init__(self) -> None:
        self._in_place_of(GenerationSettings())

    def _in_place_of(self, settings: GenerationSettings) -> GenerationSettings:
        return replace(settings, **{name: value for name, value in vars(self).items() if value is not None})

    def settings_for(self, pipe: "DiffusionPipeline") -> GenerationSettings:
        """The settings that the authors of the model recommend, overridden by the options that the user gave."""
        from galaxydit.pipelines.published_models import recommended_settings

        recommended = recommended_settings(pipe)
        self.tell_negative_prompt(recommended.negative_prompt)
        return self._in_place_of(recommended)

    def tell_negative_prompt(self, recommended: str | None) -> None:
        """Say the negative prompt that the recipe adds, unless the user gave one."""
        if recommended and self.negative_prompt is None:
            say(f"negative prompt of the model's authors (--negative-prompt changes it): {recommended}")


@dataclass(frozen=True)
class InputFiles:
    """Options of images and videos that a pipeline takes beside the prompt."""

    section: ClassVar = "Images and videos that the model takes"

    image: Annotated[str | None, typer.Option(metavar="FILE", help="The first frame.")] = None
    last_image: Annotated[str | None, typer.Option(metavar="FILE", help="The last frame.")] = None
    video: Annotated[str | None, typer.Option(metavar="FILE", help="The video to change.")] = None
    mask: Annotated[str | None, typer.Option(metavar="FILE", help="A video, white where --video changes.")] = None
    reference_images: Annotated[
        list[str] | None, typer.Option("--reference-image", metavar="FILE", help="May be given several times.")
    ] = None

    def added_to(self, prompts: Iterable[str]) -> tuple[str, ...]:
        """Prompts as JSON that names the files; unchanged without files. Raises as `merge_inputs`."""
        files = {name: value for name, value in vars(self).items() if value}
        return tuple(merge_inputs(prompt, files) for prompt in prompts)


@dataclass(frozen=True)
class RequestOptions:
    """Options of `galaxydit.accelerate`; raises GalaxyDiTError for values that are wrong for every model."""

    section: ClassVar = "Speed"

    speedup: Annotated[
        float | None, typer.Option(min=1, help="Block evaluations without the plugin / with it; by default 2.")
    ] = None
    policy: Annotated[
        str,
        typer.Option(
            help="schedule: planned steps; proxy: a calibrated proxy; paper: as published; auto: schedule or proxy."
        ),
    ] = AUTO
    max_error: Annotated[float | None, typer.Option(help="Largest expected relative error of a reused step.")] = None
    profile: Annotated[
        str | None,
        typer.Option(
            help="A file of `calibrate`, hf://owner/name, or the name of a profile that is shipped; by default the one "
            "that is shipped for this model, if there is one."
        ),
    ] = None
    threshold: Annotated[
        float | None, typer.Option(min=0, help="By hand: reuse while the proxy has moved less; larger is faster.")
    ] = None
    quality: Quality = None
    min_psnr: Annotated[
        float | None, typer.Option(help="Instead of --speedup: the largest one that the profile verified at this PSNR.")
    ] = None
    few_steps: Annotated[
        int | None, typer.Option(min=0, help="Generations of so many steps or fewer are computed in full.")
    ] = None

    def __post_init__(self) -> None:
        CoreRequest(**vars(self))
        if self.profile is not None and not self.profile.startswith("hf://") and not os.path.isfile(self.profile):
            shipped = sorted(path.stem for path in Path(str(files("galaxydit") / "profiles")).glob("*.json"))
            if self.profile not in shipped:
                expected = f"a file, or one that is shipped ({', '.join(shipped)})"
                cure = f"run `galaxydit calibrate`{did_you_mean(self.profile, shipped)}"
                raise refusal("profile", self.profile, expected, cure)


@dataclass(frozen=True)
class RayOptions:
    """Where videos are made. Raises typer.BadParameter for --workers or --gpus-per-worker without --ray, and for
    --processes with it."""

    section: ClassVar = "Cluster"

    ray: Annotated[str | None, typer.Option(metavar="[ADDRESS]", help=RAY_HELP)] = None
    workers: Annotated[int | None, typer.Option(min=1, help="With --ray; by default one for each GPU.")] = None
    gpus_per_worker: Annotated[
        int | None, typer.Option(min=0, help="With --ray: GPUs of one video (context parallel); by default one.")
    ] = None
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that share this machine's device, for small models.")
    ] = None

    def __post_init__(self) -> None:
        if self.ray is not None and self.processes is not None:
            raise typer.BadParameter(f"--processes={self.processes} has no effect with --ray: take --workers")
        for name, value in (("--workers", self.workers), ("--gpus-per-worker", self.gpus_per_worker)):
            if self.ray is None and value is not None:
                raise typer.BadParameter(f"{name}={value} has no effect without --ray: add --ray, or leave it out")

    def executor(self) -> "AbstractContextManager[Executor]":
        """Return a context manager of the executor that makes videos: in this process, in --processes, or on --ray."""
        from galaxydit.pipelines.runs import InProcess, InProcesses, OnRay

        if self.ray is not None:
            return OnRay(self.ray, self.workers, self.gpus_per_worker)
        return nullcontext(InProcess()) if self.processes is None else InProcesses(self.processes)

    def load(self, model: ModelOptions) -> "tuple[DiffusionPipeline, Callable[[], DiffusionPipeline] | None]":
        """The pipeline on the device, and None; with --ray on the CPU, and a function to load it on a worker."""
        if self.ray is None:
            return model.load(), None
        return replace(model, offload="none").load("cpu"), model.load
