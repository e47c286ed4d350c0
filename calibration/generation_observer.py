"""Record one full generation: every proxy in every branch, and how much the guided prediction changes."""

import math
from collections.abc import Callable
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.acceleration import transformers_of
from galaxydit.calibration.recording import Recording, round_digits
from galaxydit.calibration.scheduler_response import scheduler_response
from galaxydit.config import Config
from galaxydit.engine import Call, Engine
from galaxydit.errors import GalaxyDiTError
from galaxydit.families import CONCATENATED, Family, blocks_of, family_of
from galaxydit.hooks import FirstBlockHook, HookSet, PartHook, RootHook
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.proxies import filter_latent, relative_l1
from galaxydit.session import Session
from galaxydit.trajectory import StepInfo, locate, signature_of

CONDITIONAL, UNCONDITIONAL = "conditional", "unconditional"
NORM = "guided norm"
GUIDED_ELEMENTS = 2**17  # about, of each guided prediction; those of all steps are kept


class GenerationObserver:
    """Turns the tensors of one full generation into the scalars of a `Recording`.

    Memory: the last tensor of each proxy, and a subsample of the guided prediction of every step.
    """

    def __init__(self, family: Family, guidance_scale: Callable[[], float]) -> None:
        self._family = family
        self._guidance_scale = guidance_scale
        self._branch = CONDITIONAL
        self._split = False
        self._step = -1
        self._scheduler: Any = None
        self._latent_shape: tuple[int, ...] = ()
        self._sigmas: list[float] = []
        self._previous: dict[str, Tensor] = {}
        self._outputs: dict[str, Tensor] = {}
        self._scalars: dict[str, Tensor] = {}
        self._finished: list[dict[str, float]] = []
        self._guided: list[Tensor] = []

    def start_call(self, latent: Tensor, branch: str, step: StepInfo, scheduler: Any) -> None:
        """A transformer call on `latent`, `(batch, ...)`, begins; `branch` is the name that the pipeline gives it."""
        if step.step != self._step:
            self._finish_step()
            self._step = step.step
            self._sigmas.append(step.sigma)
        self._scheduler = scheduler  # kept, because a temporary flow shift replaces it for one generation
        self._latent_shape = tuple(latent.shape[1:])
        self._split = self._family.branches == CONCATENATED and self._guidance_scale() > 1 and len(latent) % 2 == 0
        unconditional = "uncond" in branch or CONDITIONAL in self._outputs
        self._branch = UNCONDITIONAL if unconditional else CONDITIONAL

    def read(self, proxy: str, tensor: Callable[[], Tensor]) -> None:
        """Note the distance of a proxy's tensor, `(batch, ...)`, to the step before, in the conditional branch."""
        if self._branch == UNCONDITIONAL and not self._split:
            return
        current = self._branches_of(tensor())[CONDITIONAL]
        if proxy in self._previous:
            self._scalars[proxy] = relative_l1(current, self._previous[proxy]).max()
        self._previous[proxy] = current

    def end_call(self, output: Tensor) -> None:
        """Note the call's output, `(batch, ...)`."""
        for branch, tensor in self._branches_of(output).items():
            self._outputs[branch] = tensor.detach().float().flatten()

    def recording(self, prompt: str, seed: int) -> Recording:
        """The recording, once the generation is over."""
        self._finish_step()

        def column(key: str) -> tuple[float, ...]:
            return tuple(round_digits(scalars.get(key, 0.0)) for scalars in self._finished)

        return Recording(
            prompt=prompt,
            seed=seed,
            sigmas=tuple(map(round_digits, self._sigmas)),
            scheduler_response=scheduler_response(self._scheduler, self._sigmas),
            guidance_scale=float(self._guidance_scale()),
            latent_shape=self._latent_shape,
            distances={proxy: column(proxy) for proxy in self._family.proxies},
            guided_norms=column(NORM),
            guided_products=self._guided_products(),
        )

    def _branches_of(self, tensor: Tensor) -> dict[str, Tensor]:
        """The branches in one call; a concatenated batch has the unconditional half first."""
        if not self._split:
            return {self._branch: tensor}
        if len(tensor) % 2:
            return {UNCONDITIONAL: tensor, CONDITIONAL: tensor}
        return dict(zip((UNCONDITIONAL, CONDITIONAL), tensor.chunk(2), strict=True))

    def _finish_step(self) -> None:
        """Compose the guided prediction from all branches, and read all scalars at once: one GPU wait per step."""
        if not self._outputs:
            return
        guided = self._outputs[CONDITIONAL]
        if UNCONDITIONAL in self._outputs:
            base = self._outputs[UNCONDITIONAL]
            guided = base + self._guidance_scale() * (guided - base)
        stride = max(1, guided.numel() // GUIDED_ELEMENTS)
        while math.gcd(stride, self._latent_shape[-1]) > 1:  # else only some columns of the latent would be sampled
            stride += 1
        self._guided.append(guided[::stride].clone())
        self._scalars[NORM] = guided.square().mean().sqrt()
        values = torch.stack([value.to(dtype=torch.float32, device="cpu") for value in self._scalars.values()]).tolist()
        self._finished.append(dict(zip(self._scalars, values, strict=True)))
        self._scalars.clear()
        self._outputs.clear()

    def _guided_products(self) -> tuple[tuple[float, ...], ...]:
        """Mean products of the guided prediction's differences from step to step, `(steps - 1, steps - 1)`."""
        differences = torch.stack(self._guided).cpu().double().diff(dim=0)
        products = (differences @ differences.T / differences.shape[1]).tolist()
        return tuple(tuple(round_digits(value, 10) for value in row) for row in products)


class _ObservedEngine(Engine):
    """Computes every call in full and shows its tensors to an observer."""

    def __init__(self, transformer: nn.Module, family: Family, session: Session, observer: GenerationObserver) -> None:
        super().__init__(transformer, "transformer", family, len(blocks_of(transformer, family)), session)
        self._observer = observer

    def run_transformer(
        self, context: CacheContext | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        latent = args[0] if args else kwargs["hidden_states"]
        scheduler = self.session.scheduler()
        step = locate(context, scheduler, kwargs.get("timestep"))
        if step is None:
            raise GalaxyDiTError("the step of a transformer call is unknown; calibrate a diffusers pipeline")
        name = context.name if context else None
        generation, branch = self.session.enter(self.component, name, step, signature_of(self.transformer, latent))
        self.call = Call(generation, generation.states[self.component], branch, step)
        self._observer.start_call(latent, branch, step, scheduler)
        try:
            self.read("noisy_latent", latent.clone)
            self.read("filtered_latent", lambda: filter_latent(latent, step.sigma))
            output = forward(*args, **kwargs)
        finally:
            self.call = None
        self._observer.end_call(output[0] if isinstance(output, tuple) else output.sample)
        return output

    def read(self, proxy: str, tensor: Callable[[], Tensor]) -> None:
        if self.call is not None:
            self._observer.read(proxy, tensor)


def record_sample(
    pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int
) -> tuple[Recording, Generation]:
    """Generate one video in full; returns its recording, and the generation without decoded frames.

    Raises GalaxyDiTError for a pipeline with two denoising transformers, and for one that is accelerated.
    """
    transformers = transformers_of(pipe)
    if len(transformers) > 1:
        raise GalaxyDiTError(
            f"pipe={type(pipe).__name__} with {len(transformers)} denoising transformers is not allowed: expected one; "
            "do without a profile, galaxydit.accelerate(pipe, speedup=...) then learns online for each of them"
        )
    transformer = transformers["transformer"]
    family = family_of(transformer)
    session = Session(Config(), lambda: pipe.scheduler)
    observer = GenerationObserver(family, lambda: guidance_of(pipe))
    hooks = _attach(transformer, family, _ObservedEngine(transformer, family, session, observer))
    try:
        generation = generate(pipe, prompt, settings, seed, decode=False)
    finally:
        hooks.remove()
        session.close()
    return observer.recording(prompt, seed), generation


def guidance_of(pipe: DiffusionPipeline) -> float:
    """The guidance scale of the generation under way; 1 for a pipeline without guidance."""
    scale = getattr(pipe, "_guidance_scale", None)
    return 1.0 if scale is None else float(scale)


def _attach(transformer: nn.Module, family: Family, engine: _ObservedEngine) -> HookSet:
    """Hooks at every place where a proxy is read."""
    hooks = HookSet()
    first_block = f"{family.stacks[0]}.0"
    hooks.add(transformer, RootHook(engine))
    hooks.add(transformer.get_submodule(first_block), FirstBlockHook(engine))
    for name, part in family.parts.items():
        source = "modulated_input" if name == "self_attention" else None
        hooks.add(transformer.get_submodule(f"{first_block}.{part}"), PartHook(engine, source, name))
    hooks.refresh(transformer)
    return hooks
