"""Muon, compared with PyTorch's, which iterates in bfloat16."""

import pytest
import torch
from torch import nn

from galaxydit.pipelines.wan_tiny.tools import muon
from galaxydit.pipelines.wan_tiny.tools.muon import Muon


@pytest.mark.parametrize("shape", [(24, 24), (48, 16), (16, 48)])
def test_steps_agree_with_pytorch(shape, monkeypatch):
    monkeypatch.setattr(muon, "fast_dtype", lambda device: torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizers = [Muon([ours], lr=0.02), torch.optim.Muon([theirs], lr=0.02, weight_decay=0.0)]
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0)
    assert (ours - start).abs().max() > 1e-2


def test_float32_and_bfloat16_agree_but_for_rounding(monkeypatch):
    matrices = torch.randn(2, 12, 20, generator=torch.Generator().manual_seed(0))
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        monkeypatch.setattr(muon, "fast_dtype", lambda device, dtype=dtype: dtype)
        results.append(muon.orthogonalise(matrices))
    torch.testing.assert_close(results[0], results[1], atol=0.06, rtol=0)
    singular = torch.linalg.svdvals(results[0])
    assert singular.min() > 0.5
    assert singular.max() < 1.5


def test_matrices_of_one_shape_do_not_mix():
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randn(8, 4, 3, generator=generator) for _ in range(2)]
    gradients = [torch.randn(8, 4, 3, generator=generator) for _ in range(2)]
    together = [nn.Parameter(start.clone()) for start in starts]
    for parameter, gradient in zip(together, gradients, strict=True):
        parameter.grad = gradient
    Muon(together, lr=0.1).step()
    for start, gradient, moved in zip(starts, gradients, together, strict=True):
        alone = nn.Parameter(start.clone())
        alone.grad = gradient
        Muon([alone], lr=0.1).step()
        torch.testing.assert_close(moved, alone)
