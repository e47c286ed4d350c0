"""LPIPS without the real weights: AlexNet's layers are random here, and the formula is written out beside it."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn
from torch.nn.functional import conv2d, max_pool2d, relu

from galaxydit.eval.metrics import METRICS
from galaxydit.eval.metrics import perceptual as module
from galaxydit.eval.metrics.perceptual import LPIPS


def lpips(video, reference):
    return LPIPS(video, reference)


def random_alexnet() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
    )


@pytest.fixture
def torchvision(monkeypatch, tmp_path):
    """A stand-in for the package and a place for its weights that is still empty."""
    fake = ModuleType("torchvision")
    fake.__spec__ = ModuleSpec("torchvision", None)
    fake.models = SimpleNamespace(
        alexnet=lambda weights: SimpleNamespace(features=random_alexnet()),
        AlexNet_Weights=SimpleNamespace(DEFAULT="real ones"),
    )
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    for user in ("torchmetrics.functional.image.lpips", "torchmetrics.image.lpip"):
        monkeypatch.setattr(f"{user}._TORCHVISION_AVAILABLE", True)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    module._network.cache_clear()
    yield tmp_path / "checkpoints" / "alexnet-owt-7be5be79.pth"
    module._network.cache_clear()


def put(weights: Path) -> None:
    weights.parent.mkdir()
    weights.touch()


def plain_lpips(frame: np.ndarray, reference: np.ndarray) -> float:
    layers = random_alexnet()
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    x, y = (((2 * torch.from_numpy(a) - 1 - shift) / scale).permute(2, 0, 1)[None] for a in (frame, reference))
    fitted = torch.load(
        Path(torchmetrics.__file__).parent / "functional/image/lpips_models/alex.pth", map_location="cpu"
    )
    total = 0.0
    for index, (number, pool) in enumerate(((0, False), (3, True), (6, True), (8, False), (10, False))):
        layer = layers[number]
        x, y = (max_pool2d(a, 3, 2) if pool else a for a in (x, y))
        x, y = (relu(conv2d(a, layer.weight, layer.bias, layer.stride, layer.padding)) for a in (x, y))
        unit_x, unit_y = (a / (a.square().sum(1, keepdim=True) + 1e-8).sqrt() for a in (x, y))
        weights = fitted[f"lin{index}.model.1.weight"].flatten()
        total += float(((unit_x - unit_y).square().mean((0, 2, 3)) * weights).sum())
    return total


def test_lpips_of_each_frame_agrees_with_the_plain_formula(torchvision, medium_pair):
    put(torchvision)
    with torch.no_grad():
        expected = [plain_lpips(a, b) for a, b in zip(*medium_pair, strict=True)]
    assert [lpips(a[None], b[None]) for a, b in zip(*medium_pair, strict=True)] == pytest.approx(expected, rel=1e-4)
    assert lpips(*medium_pair) == pytest.approx(np.mean(expected), rel=1e-4)


def test_equal_videos_have_no_distance(torchvision, medium_pair):
    put(torchvision)
    assert lpips(medium_pair[1], medium_pair[1]) == 0.0


def test_absent_weights_are_named_with_their_place_and_nothing_is_downloaded(torchvision, medium_pair):
    reason = METRICS["lpips"].missing()
    assert "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth" in reason
    assert str(torchvision) in reason
    with pytest.raises(ValueError, match="LPIPS cannot be measured: AlexNet's weights are not there"):
        lpips(*medium_pair)


def test_an_absent_and_a_broken_torchvision_are_named_with_their_cure(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "pip install 'galaxydit[lpips]'" in METRICS["lpips"].missing()
    monkeypatch.setattr(module, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setitem(sys.modules, "torchvision", None)  # makes the import fail
    assert "install the build that belongs to torch" in METRICS["lpips"].missing()
