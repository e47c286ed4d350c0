import pytest
import torch

from galaxydit.eval.jobs.rank import Rank, this_rank


def test_the_launchers_environment_says_which_process_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert this_rank() == Rank(0, 0)
    assert this_rank().is_main
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert this_rank() == Rank(9, 1)
    assert not this_rank().is_main


@pytest.mark.parametrize(("local", "index"), [(0, 0), (1, 1), (5, 1)])
def test_each_process_of_a_machine_takes_a_gpu_in_turn(monkeypatch: pytest.MonkeyPatch, local: int, index: int) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    assert Rank(local + 8, local).take_device() == torch.device("cuda", index)
    assert taken == [torch.device("cuda", index)]


def test_without_a_gpu_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Rank().take_device() == torch.device("cpu")
