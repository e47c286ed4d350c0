"""What computed steps leave behind for each sample, and what reused steps are predicted from."""

from typing import Any

from torch import Tensor

from galaxydit.extrapolation import predict, remember
from galaxydit.policies.config import GalaxyDiTConfig
from galaxydit.proxies import relative_l2
from galaxydit.runtime.call import Call
from galaxydit.runtime.outputs import pack
from galaxydit.runtime.samples import join_samples


def forget(call: Call) -> None:
    """Free what is remembered of the samples of a call."""
    for sample in call.samples:
        call.state.history.pop((call.branch, sample), None)


def keep(call: Call, outputs: tuple[Tensor, ...], config: GalaxyDiTConfig, group: Any | None) -> str | None:
    """Remember what a computed call gave, and the error that its prediction would have had; returns why where it cannot
    be remembered.
    """
    if config.reuse == "output":
        tensor = pack([output.detach() for output in outputs])
    elif call.before is None or call.after is None:
        return "the block stack did not run as expected, so nothing of it is reused"
    else:
        tensor = (call.after - call.before).detach()
    count = len(call.samples)
    if count > 1 and len(tensor) != len(call.latent):
        return "the samples of a batch cannot be told apart in the output, so it is computed in full"
    for place, sample in enumerate(call.samples):
        key, history = (call.branch, sample), call.state.history
        kept = tensor if count == 1 else tensor[place::count].clone()
        if config.policy.learns_errors and history.get(key):
            call.state.errors[key] = float(relative_l2(kept, _predict_sample(call, place, config.order), group))
        history[key] = remember(history.get(key, ()), (call.info.sigma, kept), config.history_length)
    return None


def predict_samples(call: Call, order: int) -> Tensor:
    """What reuse gives for the samples of a call, `(rows, ...)`."""
    return join_samples([_predict_sample(call, place, order) for place in range(len(call.samples))])


def _predict_sample(call: Call, place: int, order: int) -> Tensor:
    return predict(call.state.history[call.branch, call.samples[place]], call.info.sigma, order)
