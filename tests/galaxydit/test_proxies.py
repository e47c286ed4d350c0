import pytest
import torch

from galaxydit.proxies import filter_latent, relative_l1


def test_relative_l1_is_each_samples_mean_change_over_its_mean_size() -> None:
    previous = torch.tensor([[1.0, -1.0], [2.0, 4.0]])
    current = torch.tensor([[2.0, -1.0], [2.0, 4.0]])
    assert relative_l1(current, previous).tolist() == pytest.approx([0.5, 0.0])


def test_relative_l1_of_bfloat16_is_summed_in_float32() -> None:
    previous = torch.ones(1, 100_000, dtype=torch.bfloat16)
    assert relative_l1(previous * 1.5, previous).item() == pytest.approx(0.5)


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
