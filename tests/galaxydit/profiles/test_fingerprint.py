from torch import nn

from galaxydit.profiles.fingerprint import project_weights


def test_the_order_in_which_modules_were_registered_does_not_matter() -> None:
    parts = {name: nn.Linear(8, 8) for name in "abcdefghijkl"}
    forth, back = nn.Module(), nn.Module()
    for name in parts:
        forth.add_module(name, parts[name])
    for name in reversed(parts):
        back.add_module(name, parts[name])
    assert project_weights(forth) == project_weights(back)
    assert len(project_weights(forth)) == 8


def test_weights_of_another_kind_are_not_read() -> None:
    """Quantised weights are subclasses of parameters, and many operations on them fail."""

    class Packed(nn.Parameter):
        pass

    model = nn.Linear(8, 8)
    assert project_weights(model)
    model.weight = Packed(model.weight.detach())
    assert project_weights(model) == ()
