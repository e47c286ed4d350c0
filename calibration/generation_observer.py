"""Record one full generation: every proxy in every branch, and how much the guided prediction changes."""

import math
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.acceleration import transformers_of
from galaxydit.calibration.recording import CONDITIONAL, LAGS, UNCONDITIONAL, Recording, round_digits
from galaxydit.calibration.scheduler_response import scheduler_response
from galaxydit.config import Config
from galaxydit.engine import Call, Engine
from galaxydit.errors import GalaxyDiTError
from galaxydit.families import CONCATENATED, Family, blocks_of, family_of
from galaxydit.hooks import FirstBlockHook, HookSet, PartHook, RootHook, StackBlockHook
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.proxies import filter_latent, relative_l1
from galaxydit.session import Session
from galaxydit.trajectory import StepInfo, locate, signature_of

RESIDUAL_ELEMENTS = 2**20  # at most, of each residual
GUIDED_ELEMENTS = 2**17  # about, of each guided prediction; those of all steps are kept


class GenerationObserver:
    """Turns the tensors of one full generation into the scalars of a `Recording`.

    Memory: the last tensor of each proxy, the last four outputs and subsampled residuals of each branch, and a
    subsample of the guided prediction of every step.
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
        self._previous: dict[tuple[str, str], Tensor] = {}
        self._recent: dict[tuple[str, str], deque[Tensor]] = defaultdict(lambda: deque(maxlen=len(LAGS)))
        self._outputs: dict[str, Tensor] = {}
        self._scalars: dict[tuple[str, ...], Tensor] = {}
        self._finished: list[dict[tuple[str, ...], float]] = []
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

    def read(self, proxy: str, tensor: Tensor) -> None:
        """Note the distance of a proxy's tensor, `(batch, ...)`, to the step before."""
        for branch, current in self._branches_of(tensor):
            previous = self._previous.get((branch, proxy))
            if previous is not None:
                self._scalars["distance", branch, proxy] = relative_l1(current, previous).max()
            self._previous[branch, proxy] = current

    def end_call(self, output: Tensor, residual: Tensor | None) -> None:
        """Note the call's output, and the residual of its block stack, `(batch, tokens, dim)`, where there is one."""
        for branch, tensor in self._branches_of(output):
            self._outputs[branch] = tensor.detach().float().flatten()
            self._note_changes(("output", branch), self._outputs[branch])
        if residual is not None:
            for branch, tensor in self._branches_of(residual):
                self._note_changes(("residual", branch), _subsample(tensor))

    def recording(self, prompt: str, seed: int) -> Recording:
        """The recording, once the generation is over."""
        self._finish_step()
        branches = [b for b in (CONDITIONAL, UNCONDITIONAL) if self._was_noted("output", b)]

        def column(*key: str) -> tuple[float, ...]:
            return tuple(round_digits(scalars.get(key, 0.0)) for scalars in self._finished)

        def changes(kind: str) -> dict[str, tuple[tuple[float, ...], ...]]:
            return {
                branch: tuple(zip(*(column(kind, branch, str(lag)) for lag in LAGS), strict=True))
                for branch in branches
                if self._was_noted(kind, branch)
            }

        return Recording(
            prompt=prompt,
            seed=seed,
            sigmas=tuple(map(round_digits, self._sigmas)),
            scheduler_response=scheduler_response(self._scheduler, self._sigmas),
            guidance_scale=float(self._guidance_scale()),
            latent_shape=self._latent_shape,
            distances={b: {proxy: column("distance", b, proxy) for proxy in self._family.proxies} for b in branches},
            residual_changes=changes("residual"),
            output_changes=changes("output"),
            guided_norms=column("norm"),
            guided_products=self._guided_products(),
        )

    def _branches_of(self, tensor: Tensor) -> list[tuple[str, Tensor]]:
        """The branches in one call; a concatenated batch has the unconditional half first."""
        if not self._split:
            return [(self._branch, tensor)]
        if len(tensor) % 2:
            return [(UNCONDITIONAL, tensor), (CONDITIONAL, tensor)]
        return list(zip((UNCONDITIONAL, CONDITIONAL), tensor.chunk(2), strict=True))

    def _note_changes(self, key: tuple[str, str], tensor: Tensor) -> None:
        """Note the relative L2 change of a tensor over 1 to 4 steps."""
        recent = self._recent[key]
        norm = torch.linalg.vector_norm(tensor).clamp_min(torch.finfo(torch.float32).tiny)
        for lag, before in zip(LAGS, reversed(recent), strict=False):
            self._scalars[*key, str(lag)] = torch.linalg.vector_norm(tensor - before) / norm
        recent.append(tensor)

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
        self._scalars["norm",] = guided.square().mean().sqrt()
        values = torch.stack([value.to(dtype=torch.float32, device="cpu") for value in self._scalars.values()]).tolist()
        self._finished.append(dict(zip(self._scalars, values, strict=True)))
        self._scalars.clear()
        self._outputs.clear()

    def _was_noted(self, kind: str, branch: str) -> bool:
        return any((kind, branch, "1") in scalars for scalars in self._finished)

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
        call = self.call = Call(generation, generation.states[self.component], branch, step)
        self._observer.start_call(latent, branch, step, scheduler)
        try:
            self.read("noisy_latent", latent.clone)
            self.read("filtered_latent", lambda: filter_latent(latent, step.sigma))
            output = forward(*args, **kwargs)
        finally:
            self.call = None
        known = call.stack_input is not None and call.stack_output is not None
        residual = call.stack_output - call.stack_input if known else None  # type: ignore[operator]
        self._observer.end_call(output[0] if isinstance(output, tuple) else output.sample, residual)
        return output

    def read(self, proxy: str, tensor: Callable[[], Tensor]) -> None:
        if self.call is not None:
            self._observer.read(proxy, tensor())


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
    session = Session(Config(reuse="residual"), lambda: pipe.scheduler)
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
    """Hooks at every place where a proxy or the stack's residual is read."""
    hooks = HookSet()
    paths = [f"{stack}.{i}" for stack in family.stacks for i in range(len(getattr(transformer, stack)))]
    hooks.add(transformer, RootHook(engine))
    hooks.add(transformer.get_submodule(paths[0]), FirstBlockHook(engine))
    if family.returns_tensor:
        for path in paths[1:]:
            hooks.add(transformer.get_submodule(path), StackBlockHook(engine, is_last=path == paths[-1]))
    for name, part in family.parts.items():
        source = "modulated_input" if name == "self_attention" else None
        hooks.add(transformer.get_submodule(f"{paths[0]}.{part}"), PartHook(engine, source, name))
    hooks.refresh(transformer)
    return hooks


def _subsample(tensor: Tensor) -> Tensor:
    """Subsample tokens of `(batch, tokens, dim)` at a fixed stride and flatten; bounds the memory for long videos."""
    stride = max(1, math.ceil(tensor.numel() / RESIDUAL_ELEMENTS))
    return tensor.detach()[:, ::stride].float().flatten()
