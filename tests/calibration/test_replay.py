"""A generation repeated from its middle: stored outputs, then the model."""

import pytest
import torch
from tiny_table import PIPELINES

from galaxydit.calibration.perturbation import Outputs, Replay, answering


@pytest.mark.parametrize("name", ["Wan VACE", "Cosmos-Predict2.5", "LTX condition", "EasyAnimate", "SANA-Video"])
def test_the_latents_are_those_of_the_whole_generation_and_the_model_computes_the_rest(name: str) -> None:
    kept = Outputs()
    pipe, _ = PIPELINES[name].build()
    steps, calls = 4, []

    def run() -> torch.Tensor:
        arguments = PIPELINES[name].arguments | {"num_inference_steps": steps, "output_type": "latent"}
        output = pipe(**arguments, generator=torch.Generator().manual_seed(0))
        return output.frames if hasattr(output, "frames") else output[0]

    with answering(pipe, kept.keep):
        whole = run()
    per_step = len(kept.tensors) // steps
    kept.steps = tuple(index // per_step for index in range(len(kept.tensors)))
    replay = Replay(kept, [1 - step / steps for step in range(steps)], 3, ())

    def counted(forward, *args, **kwargs):
        def original(*a, **k):
            calls.append(1)
            return forward(*a, **k)

        return replay.answer(original, *args, **kwargs)

    with answering(pipe, counted):
        again = run()
    assert torch.equal(again, whole)
    assert len(calls) == per_step
    assert torch.equal(run(), whole), "nothing is left behind"
