"""Record one full generation: distances of every proxy, and changes of the guided prediction (after guidance)."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.acceleration import Acceleration
from galaxydit.calibration.perturbation import Outputs, answering
from galaxydit.calibration.recording import Recording, StreamRecording, round_digits, rounded_products
from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.families import CONCATENATED
from galaxydit.files import split_digest
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.written_by import RECORDING, write_own_json
from galaxydit.policies.threshold import Threshold
from galaxydit.proxies import PROXIES, distance_of, proxies_of
from galaxydit.runtime.call import Call
from galaxydit.runtime.guidance import CONDITIONAL, UNCONDITIONAL, guidance_of, guide
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.recognition import family_of, transformers_of
from galaxydit.runtime.scheduler_response import scheduler_response
from galaxydit.schedulers import sigmas_of
from galaxydit.validation import parse

GUIDED_ELEMENTS = 2**17  # approximate number of elements kept of each step's guided prediction


class GenerationObserver(Observer):
    """Turns the tensors of one full generation of `pipe` into the scalars of a `Recording`."""

    def __init__(self, pipe: DiffusionPipeline) -> None:
        self._pipe = pipe
        self._family = family_of(next(iter(transformers_of(pipe).values())))
        self._offered = tuple(PROXIES[name] for name in proxies_of(self._family))
        self.proxies = frozenset(proxy.tensor_name for proxy in self._offered)
        self._call: Call | None = None
        self._switch = 0
        self._sigmas: list[float] = []
        self._scalars: list[dict[str, Tensor]] = []  # of each step, by proxy
        self._guided: dict[int, list[Tensor]] = {}  # subsampled, of each step, by output stream
        self._norms: dict[int, list[Tensor]] = {}  # root mean square of each step, by output stream
        self._columns: dict[int, int] = {}  # length of the last axis, by output stream
        self._schedulers: list[Any] = []  # one for each output stream
        self._previous: dict[str, Tensor] = {}
        self._outputs: dict[int, dict[str, Tensor]] = {}  # of the current step, by output stream and branch
        self.steps_of_calls: list[int] = []

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        """Keep the distances of a proxy's tensor, of the conditional branch, to that of the step before."""
        self._enter(call)
        if (current := self._branches_of(call, tensor).get(CONDITIONAL)) is not None:
            if name in self._previous and self._previous[name].shape == current.shape:
                for proxy in self._offered:  # one tensor serves all distances
                    if proxy.tensor_name == name:
                        self._scalars[-1][proxy.name] = distance_of(proxy, current, self._previous[name]).max()
            self._previous[name] = current

    def on_output(self, call: Call, output: Tensor) -> None:
        self._keep_output(call, 0, output)

    def on_further_output(self, call: Call, index: int, output: Tensor) -> None:
        self._keep_output(call, index, output)

    def _keep_output(self, call: Call, index: int, output: Tensor) -> None:
        self._enter(call)
        self._columns[index] = call.latent.shape[-1]
        if index:
            self._columns[index] = output.shape[-1]
        branches = self._branches_of(call, output, index)
        outputs = self._outputs.setdefault(index, {})
        for branch, tensor in branches.items():
            outputs[branch] = tensor.detach().float().flatten()

    def recording(self, prompt: str, seed: int) -> Recording:
        """The recording of the finished generation. Raises GalaxyDiTError if no loop was declared."""
        self._finish_step()
        if self._call is None:
            raise GalaxyDiTError("the steps of the transformer calls are unknown; calibrate a diffusers pipeline")
        scheduler = self._schedulers[0]

        distances = {}
        for proxy in self._offered:
            # The first step of a transformer has no distance, because it has no step before.
            distances[proxy.name] = tuple(round_digits(scalars.get(proxy.name, 0.0)) for scalars in self._scalars)
        further = [self._stream(index) for index in sorted(self._guided) if index]
        return Recording(
            prompt=prompt,
            seed=seed,
            sigmas=tuple(map(round_digits, self._sigmas)),
            scheduler_response=tuple(map(round_digits, scheduler_response(scheduler, self._sigmas))),
            guidance_scale=guidance_of(self._pipe),
            latent_shape=tuple(self._call.latent.shape[1:]),
            distances=distances,
            guided_norms=tuple(map(round_digits, self._norms[0])),
            guided_products=_products(self._guided[0]),
            switch=self._switch,
            further=tuple(further),
        )

    def _stream(self, index: int) -> StreamRecording:
        scheduler = self._schedulers[index]
        sigmas = sigmas_of(scheduler, len(self._sigmas)) or tuple(self._sigmas)
        return StreamRecording(
            sigmas=tuple(map(round_digits, sigmas)),
            scheduler_response=tuple(map(round_digits, scheduler_response(scheduler, sigmas))),
            guided_norms=tuple(map(round_digits, self._norms[index])),
            guided_products=_products(self._guided[index]),
        )

    def save(self, path: Path, settings: GenerationSettings, prompt: str, seed: int) -> None:
        """Write the recording of the video that was made with `settings`, with all that it depends on.

        A calibration only checks by it: the model's own dtype hides how little outputs change.
        """
        recording = asdict(self.recording(prompt, seed))
        data = {"conditions": conditions_of(self._pipe, settings), "recording": recording}
        write_own_json(path, RECORDING, data)

    def _enter(self, call: Call) -> None:
        """Make `call` the current call; the first one of a step finishes the step before."""
        if call is self._call:
            return
        if self._call is None or call.info.step != self._call.info.step:
            self._finish_step()
            if self._call is not None and call.component != self._call.component:
                self._switch = len(self._sigmas)
                self._previous.clear()
            self._sigmas.append(call.info.sigma)
            self._scalars.append({})
        self._call = call
        self.steps_of_calls.append(len(self._sigmas) - 1)
        # Kept, because a temporary flow shift replaces the scheduler for one generation.
        main = self._pipe.scheduler
        self._schedulers = [getattr(self._pipe, stream.scheduler, None) or main for stream in self._family.streams]

    def _branches_of(self, call: Call, tensor: Tensor, stream: int = 0) -> dict[str, Tensor]:
        """`tensor` by branch; a concatenated batch has the unconditional half first, and an odd one counts for both."""
        concatenated = self._family.branches == CONCATENATED and guidance_of(self._pipe) > 1
        if not concatenated or len(call.latent) % 2:
            # Without a name, the second call of a step is the unconditional one.
            is_unconditional = "uncond" in call.branch or CONDITIONAL in self._outputs.get(stream, {})
            return {UNCONDITIONAL if is_unconditional else CONDITIONAL: tensor}
        if len(tensor) % 2:
            return {UNCONDITIONAL: tensor, CONDITIONAL: tensor}
        first, second = tensor.chunk(2)
        return {UNCONDITIONAL: first, CONDITIONAL: second}

    def _finish_step(self) -> None:
        """Keep a subsample of the guided prediction, and its norm on the device, so that no step waits for it."""
        if self._call is None or not self._outputs:
            return
        scale = guidance_of(self._pipe, self._call.component)
        for stream, outputs in self._outputs.items():
            guided = guide(outputs[CONDITIONAL], outputs.get(UNCONDITIONAL), scale)
            stride = max(1, guided.numel() // GUIDED_ELEMENTS)
            columns = self._columns[stream]
            while math.gcd(stride, columns) > 1:  # else only some columns of the latent would be sampled
                stride += 1
            self._guided.setdefault(stream, []).append(guided[::stride].clone())
            self._norms.setdefault(stream, []).append(guided.square().mean().sqrt())
        self._outputs.clear()


def _products(guided: list[Tensor]) -> tuple[tuple[float, ...], ...]:
    """Mean products of the differences of neighbouring steps, `(steps - 1,) * 2`."""
    differences = torch.stack(guided).cpu().double().diff(dim=0)
    return rounded_products((differences @ differences.T / differences.shape[1]).tolist())


@contextmanager
def observed(pipe: DiffusionPipeline) -> Iterator[GenerationObserver]:
    """Observe one plain video. Raises GalaxyDiTError if `pipe` is accelerated."""
    observer = GenerationObserver(pipe)
    with Acceleration(pipe, GalaxyDiTConfig(policy=Threshold(0.0), few_steps=0), observer=observer):
        yield observer


def record_sample(
    pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int
) -> tuple[Recording, GeneratedVideo, Outputs]:
    """The recording of a full generation, the generation without frames, and the outputs of its calls."""
    outputs = Outputs()
    with answering(pipe, outputs.keep), observed(pipe) as observer:
        generation = generate(pipe, prompt, settings, seed, decode=False)
    outputs.steps = tuple(observer.steps_of_calls)
    return observer.recording(prompt, seed), generation, outputs


def read_recorded(path: Path, conditions: Mapping[str, Any]) -> Recording:
    """The recording in a file; raises GalaxyDiTError unless its `conditions` (`conditions_of`) are these."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        _, is_unchanged = split_digest(data)
        if is_unchanged is False:  # files of earlier versions have no digest
            raise ValueError("its digest does not belong to its content")
        before = data["conditions"]
        recording = parse(Recording, data["recording"], str(path))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError, GalaxyDiTError) as error:
        raise refusal("recorded", str(path), f"a file of --record ({error})", "make it again") from error
    now = json.loads(json.dumps(conditions))
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        expected = f"a video of this model and these settings, not of another {', '.join(other)}"
        raise refusal("recorded", str(path), expected, "pass the options that it was made with")
    return recording
