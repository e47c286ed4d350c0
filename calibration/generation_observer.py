"""Watch one full generation: every proxy in every branch, and how much the model's output truly changes."""

import math
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.acceleration import transformers_of
from galaxydit.calibration.recording import CONDITIONAL, LAGS, UNCONDITIONAL, Recording
from galaxydit.calibration.sampler import step_weights
from galaxydit.config import Config
from galaxydit.engine import Call, Engine
from galaxydit.errors import GalaxyDiTError
from galaxydit.families import CONCATENATED, Family, blocks_of, family_of
from galaxydit.hooks import FirstBlockHook, HookSet, PartHook, RootHook, StackBlockHook
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.proxies import filter_latent, relative_l1
from galaxydit.session import Session
from galaxydit.trajectory import signature_of

KEPT_ELEMENTS = 2**20  # of each residual: a fixed share of its tokens stands for all
KEPT_OF_GUIDED = 2**17  # of each guided prediction, which are kept for all steps


class Recorder(Engine):
    """Stands where the engine stands while it accelerates, reads every proxy, reuses nothing.

    It keeps the last tensor of each proxy, the last few outputs, and a fixed number of values of each step's guided
    prediction; all else are scalars.
    """

    def __init__(
        self, transformer: nn.Module, family: Family, session: Session, guidance_scale: Callable[[], float]
    ) -> None:
        super().__init__(transformer, "transformer", family, len(blocks_of(transformer, family)), session)
        self._guidance_scale = guidance_scale
        self._previous: dict[tuple[str, str], Tensor] = {}
        self._recent: dict[str, deque[Tensor]] = defaultdict(lambda: deque(maxlen=len(LAGS)))
        self._step = -1
        self._split = False
        self._branches: dict[str, str] = {}
        self._outputs: dict[str, Tensor] = {}
        self._now: dict[tuple[str, ...], Tensor | float] = {}
        self._scalars: list[dict[tuple[str, ...], float]] = []
        self._guided: list[Tensor] = []
        self.sigmas: list[float] = []
        self._scheduler: Any = None
        self.latent_shape: tuple[int, ...] = ()

    def run_transformer(
        self, context: CacheContext | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The transformer's forward pass, in full, with everything around it read."""
        latent = args[0] if args else kwargs["hidden_states"]
        generation, name, info = self._locate(context, latent, kwargs)
        if info.step != self._step:
            self._finish_step()
            self._step = info.step
            self.sigmas.append(info.sigma)
        self.latent_shape = tuple(latent.shape[1:])
        self._split = self.family.branches == CONCATENATED and self._guidance_scale() > 1 and len(latent) % 2 == 0
        unconditional = "uncond" in name or (bool(self._outputs) and CONDITIONAL in self._outputs)
        branch = UNCONDITIONAL if unconditional else CONDITIONAL
        call = self.call = Call(generation, generation.states[self.component], branch, info)
        try:
            self.read("noisy_latent", latent.clone)
            self.read("filtered_latent", lambda: filter_latent(latent, info.sigma))
            output = forward(*args, **kwargs)
        finally:
            self.call = None
        sample = output[0] if isinstance(output, tuple) else output.sample
        for part, tensor in self._parts(branch, sample):
            self._outputs[part] = tensor.detach().float().flatten()
            self._watch(("output", part), self._outputs[part])
        if call.stack_input is not None and call.stack_output is not None:
            for part, tensor in self._parts(branch, call.stack_output - call.stack_input):
                self._watch(("residual", part), _thin(tensor))
        return output

    def _locate(self, context: CacheContext | None, latent: Tensor, kwargs: dict[str, Any]) -> Any:
        from galaxydit.trajectory import locate

        self._scheduler = self.session.scheduler()  # kept: with a flow shift of its own it is gone afterwards
        info = locate(context, self._scheduler, kwargs.get("timestep"))
        if info is None:
            raise GalaxyDiTError("the step of a transformer call is unknown; calibrate a diffusers pipeline")
        name = context.name if context else None
        generation, branch = self.session.enter(self.component, name, info, signature_of(self.transformer, latent))
        return generation, branch, info

    def _parts(self, branch: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
        """The branches inside one call: a concatenated batch has the unconditional half first."""
        if not self._split:
            return [(branch, tensor)]
        if len(tensor) % 2:
            return [(UNCONDITIONAL, tensor), (CONDITIONAL, tensor)]
        return list(zip((UNCONDITIONAL, CONDITIONAL), tensor.chunk(2), strict=True))

    def read(self, proxy: str, tensor: Callable[[], Tensor]) -> None:
        """Note a proxy's distance to the step before."""
        if self.call is None:
            return
        for branch, current in self._parts(self.call.branch, tensor()):
            previous = self._previous.get((branch, proxy))
            if previous is not None:
                self._now["distance", branch, proxy] = relative_l1(current, previous).max()
            self._previous[branch, proxy] = current

    def _watch(self, key: tuple[str, str], tensor: Tensor) -> None:
        """Note how far a tensor has moved over 1 to 4 steps."""
        ring = self._recent["/".join(key)]
        norm = torch.linalg.vector_norm(tensor).clamp_min(torch.finfo(torch.float32).tiny)
        for lag, before in zip(LAGS, reversed(ring), strict=False):
            self._now[*key, str(lag)] = torch.linalg.vector_norm(tensor - before) / norm
        ring.append(tensor)

    def _finish_step(self) -> None:
        """All branches of a step are in: compose the guided prediction and turn what was noted into numbers, at once,
        so that a GPU waits once a step.
        """
        if not self._outputs:
            return
        guided = self._outputs[CONDITIONAL]
        if UNCONDITIONAL in self._outputs:
            base = self._outputs[UNCONDITIONAL]
            guided = base + self._guidance_scale() * (guided - base)
        stride = max(1, guided.numel() // KEPT_OF_GUIDED)
        while math.gcd(stride, self.latent_shape[-1]) > 1:  # else it would meet some columns of the latent alone
            stride += 1
        self._guided.append(guided[::stride].clone())
        self._now["norm",] = guided.square().mean().sqrt()
        keys = list(self._now)
        values = torch.stack([torch.as_tensor(self._now[key], dtype=torch.float32).cpu() for key in keys]).tolist()
        self._scalars.append(dict(zip(keys, values, strict=True)))
        self._now.clear()
        self._outputs.clear()

    def recording(self, prompt: str, seed: int) -> Recording:
        """What was seen, once the generation is over."""
        self._finish_step()
        proxies = [name for name in self.family.proxies]
        branches = [b for b in (CONDITIONAL, UNCONDITIONAL) if any(("output", b, "1") in s for s in self._scalars)]

        def column(*key: str) -> tuple[float, ...]:
            return tuple(_round(scalars.get(key, 0.0)) for scalars in self._scalars)

        def rows(kind: str) -> dict[str, tuple[tuple[float, ...], ...]]:
            return {
                branch: tuple(zip(*(column(kind, branch, str(lag)) for lag in LAGS), strict=True))
                for branch in branches
                if any((kind, branch, "1") in scalars for scalars in self._scalars)
            }

        return Recording(
            prompt=prompt,
            seed=seed,
            sigmas=tuple(_round(sigma) for sigma in self.sigmas),
            step_weights=step_weights(self._scheduler, self.sigmas),
            guidance_scale=float(self._guidance_scale()),
            latent_shape=self.latent_shape,
            distances={branch: {proxy: column("distance", branch, proxy) for proxy in proxies} for branch in branches},
            residual_changes=rows("residual"),
            output_changes=rows("output"),
            guided_norms=column("norm"),
            guided_products=self._products(),
        )

    def _products(self) -> tuple[tuple[float, ...], ...]:
        """Mean products of the guided prediction's changes from step to step."""
        changes = torch.stack(self._guided).cpu().double().diff(dim=0)
        products = (changes @ changes.T / changes.shape[1]).tolist()
        return tuple(tuple(float(f"{value:.10g}") for value in row) for row in products)


def record_sample(
    pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int
) -> tuple[Recording, Generation]:
    """Generate one video in full and return what was recorded, and the generation, not decoded.

    Raises GalaxyDiTError for a pipeline with two denoising transformers, or one that is accelerated.
    """
    transformers = transformers_of(pipe)
    if len(transformers) > 1:
        raise GalaxyDiTError(
            f"{type(pipe).__name__} denoises with {len(transformers)} transformers, allowed is one; use "
            "galaxydit.accelerate(pipe, speedup=...) without a profile, which learns online for each of them"
        )
    transformer = transformers["transformer"]
    family = family_of(transformer)
    session = Session(Config(reuse="residual"), lambda: pipe.scheduler)
    recorder = Recorder(transformer, family, session, lambda: guidance_of(pipe))
    hooks = _attach(transformer, family, recorder)
    try:
        generation = generate(pipe, prompt, settings, seed, decode=False)
    finally:
        hooks.remove()
        session.close()
    return recorder.recording(prompt, seed), generation


def guidance_of(pipe: DiffusionPipeline) -> float:
    """The guidance scale of the generation under way; 1 for a pipeline without guidance."""
    scale = getattr(pipe, "_guidance_scale", None)
    return 1.0 if scale is None else float(scale)


def _attach(transformer: nn.Module, family: Family, recorder: Recorder) -> HookSet:
    hooks = HookSet()
    paths = [f"{stack}.{i}" for stack in family.stacks for i in range(len(getattr(transformer, stack)))]
    hooks.add(transformer, RootHook(recorder))
    hooks.add(transformer.get_submodule(paths[0]), FirstBlockHook(recorder))
    if family.returns_tensor:
        for path in paths[1:]:
            hooks.add(transformer.get_submodule(path), StackBlockHook(recorder, is_last=path == paths[-1]))
    for name, part in family.parts.items():
        source = "modulated_input" if name == "self_attention" else None
        hooks.add(transformer.get_submodule(f"{paths[0]}.{part}"), PartHook(recorder, source, name))
    hooks.refresh(transformer)
    return hooks


def _thin(tensor: Tensor) -> Tensor:
    """Every so-manieth token of `(batch, tokens, dim)`, flat: memory does not grow with the video."""
    stride = max(1, math.ceil(tensor.numel() / KEPT_ELEMENTS))
    return tensor.detach()[:, ::stride].float().flatten()


def _round(value: float) -> float:
    """Seven significant digits: what lies beyond is the noise of float32."""
    return float(f"{value:.7g}")
