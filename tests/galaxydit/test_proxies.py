from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from galaxydit.proxies import PIECE_ON_CPU, filter_latent, relative_l1


def test_relative_l1_is_each_samples_mean_change_over_its_mean_size() -> None:
    previous = torch.tensor([[1.0, -1.0], [2.0, 4.0]])
    current = torch.tensor([[2.0, -1.0], [2.0, 4.0]])
    assert relative_l1(current, previous).tolist() == pytest.approx([0.5, 0.0])


def test_relative_l1_of_bfloat16_is_summed_in_float32() -> None:
    previous = torch.ones(1, 100_000, dtype=torch.bfloat16)
    assert relative_l1(previous * 1.5, previous).item() == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_relative_l1_in_pieces_is_that_of_the_whole(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    previous, current = (
        torch.randn(2, 70, 33, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1)
    )
    change = (current - previous).abs().double().flatten(1).mean(dim=1)
    expected = change / previous.abs().double().flatten(1).mean(dim=1)
    for size in (1000, 2310, 2**20):
        monkeypatch.setattr("galaxydit.proxies.PIECE_ON_CPU", size)
        assert torch.allclose(relative_l1(current, previous).double(), expected, rtol=1e-6)


def test_relative_l1_is_exact_at_the_size_of_real_hidden_states() -> None:
    """A sum of millions of numbers one by one in float32 is wrong in the third digit."""
    previous = torch.randn(1, 8190, 512, generator=torch.Generator().manual_seed(0))
    assert relative_l1(previous * 1.25, previous).item() == pytest.approx(0.25, rel=1e-5)


def test_relative_l1_allocates_a_piece_and_no_copy() -> None:
    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(
            self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            result = function(*args, **kwargs or {})
            if isinstance(result, Tensor) and not function.is_view:
                self.largest = max(self.largest, result.numel())
            return result

    previous = torch.randn(1, 3, 2**20)
    with Watch() as watch:
        relative_l1(previous + 1, previous)
        assert watch.largest == previous.numel(), "the argument itself"
        watch.largest = 0
        relative_l1(previous, previous)
    assert watch.largest == PIECE_ON_CPU


def test_relative_l1_from_zero_is_not_nan() -> None:
    assert not relative_l1(torch.zeros(1, 4), torch.zeros(1, 4)).isnan().any()


def test_the_filter_keeps_a_clean_latent_and_removes_pure_noise() -> None:
    latent = torch.randn(2, 4, 5, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(filter_latent(latent, 0.0), latent, atol=1e-5)
    assert filter_latent(latent, 1.0).abs().max() < 1e-5


def test_the_filter_removes_fine_detail_before_coarse() -> None:
    ramp = torch.linspace(0, 1, 16)
    coarse = torch.sin(2 * torch.pi * ramp).expand(1, 1, 4, 16, 16)
    fine = torch.sin(2 * torch.pi * 7 * ramp).expand(1, 1, 4, 16, 16)
    kept = [filter_latent(wave, 0.9).std() / wave.std() for wave in (coarse, fine)]
    assert kept[0] > 1.5 * kept[1]
