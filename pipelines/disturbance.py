"""Judge whether other work slowed some of the timed generations, so that their seconds must not be compared.

Generations of one way do equal work for equal compute, so their seconds / compute fraction differ by noise alone.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

PLAIN = "plain"
DISTURBED = ", disturbed"
SPREAD = 1.25  # largest ratio of the seconds for equal compute, 95th / 5th percentile; quiet machines show up to 1.15
REUSED = 0.2  # largest seconds of a reused step / those of a full step
LOAD = 1.5  # processes that want to run, for each core; one generation alone causes up to 1


@dataclass(frozen=True)
class Timed:
    way: str  # `PLAIN`, also in fewer steps; else a name, equal for equal settings
    seconds: float  # of denoising
    compute_fraction: float | None  # of all plain steps; None if unknown
    load: float | None = None  # `load_per_core` at its end
    shared: bool = False  # other work on the device is known
    place: str = ""  # device and machine; seconds of several places are not compared


def load_per_core() -> float | None:
    """Processes that want to run, mean over the last minute, for each core; None where the system does not tell."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return None


def disturbance(timed: Sequence[Timed]) -> str:
    """Why the seconds of these generations must not be compared; empty if nothing shows other work."""
    reasons = []
    noise = []
    for place in sorted({each.place for each in timed}):
        costs: dict[str, list[float]] = {}
        fractions: dict[str, list[float]] = {}
        for each in timed:
            if each.place == place and each.seconds > 0:
                costs.setdefault(each.way, []).append(math.log(each.seconds / (each.compute_fraction or 1.0)))
                fractions.setdefault(each.way, []).append(each.compute_fraction or math.nan)
        for values in costs.values():
            if len(values) > 1:
                noise += [cost - median(values) for cost in values]
        if PLAIN not in costs:
            continue
        for way in costs.keys() - {PLAIN}:
            ratio = math.exp(median(costs[way]) - median(costs[PLAIN]))  # seconds for equal compute
            fraction = median(fractions[way])
            if math.isnan(fraction):
                continue
            if ratio < 1 / SPREAD or ratio > SPREAD + REUSED * (1 / fraction - 1):
                share = f"{ratio * fraction:.2f} of the plain seconds at compute fraction {fraction:.2f}"
                reasons.append(f"{way} took {share}")
    low, *_, high = quantiles(noise, n=20, method="inclusive") if noise else (0.0, 0.0)
    ratio = math.exp(high - low)
    if ratio > SPREAD:
        reasons.append(f"the seconds for equal compute differ by a factor of {ratio:.2f}")
    load = max((each.load for each in timed if each.load is not None), default=0.0)
    if load > LOAD:
        reasons.append(f"{load:.1f} processes for each core wanted to run")
    if any(each.shared for each in timed):
        reasons.append("other work used the device")
    return "; ".join(sorted(reasons))


def marked(speedup: str, disturbed: str) -> str:
    """A speedup in seconds, in brackets and with "disturbed" if `disturbed` is not empty."""
    if disturbed and any(map(str.isdigit, speedup)):
        return f"({speedup}{DISTURBED})"
    return speedup
