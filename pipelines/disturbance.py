"""Judge whether other work slowed some of the timed generations, so that their seconds must not be compared.

The way of a generation is "plain", or the name of what made it faster. Generations of one way do equal work for equal
compute, so their seconds / compute fraction differ by noise alone. Plain generations lie before, between and after the
others, so load that begins or ends in between shows in them.
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
    """A timed generation.

    Attributes:
        way: `PLAIN` without acceleration, also in fewer steps; else a name, equal for equal settings.
        seconds: of denoising.
        compute_fraction: compute / compute of a plain generation in all steps; None if unknown.
        load: `load_per_core` at its end; None if unknown.
        shared: whether other work on the device is known.
        place: device and machine; seconds of several places are not compared.
    """

    way: str
    seconds: float
    compute_fraction: float | None
    load: float | None = None
    shared: bool = False
    place: str = ""


def load_per_core() -> float | None:
    """Processes that want to run, mean over the last minute, for each core; None where the system does not tell it."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return None


def disturbance(timed: Sequence[Timed]) -> str:
    """Why the seconds of these generations must not be compared; empty if nothing shows that other work slowed them."""
    reasons, noise = [], []
    for place in sorted({each.place for each in timed}):
        costs: dict[str, list[float]] = {}
        fractions: dict[str, list[float]] = {}
        for each in timed:
            if each.place == place and each.seconds > 0:
                costs.setdefault(each.way, []).append(math.log(each.seconds / (each.compute_fraction or 1.0)))
                fractions.setdefault(each.way, []).append(each.compute_fraction or math.nan)
        noise += [cost - median(values) for values in costs.values() if len(values) > 1 for cost in values]
        for way in costs.keys() - {PLAIN} if PLAIN in costs else ():
            ratio = math.exp(median(costs[way]) - median(costs[PLAIN]))  # seconds for equal compute
            if math.isnan(fraction := median(fractions[way])):
                continue
            if ratio < 1 / SPREAD or ratio > SPREAD + REUSED * (1 / fraction - 1):
                share = f"{ratio * fraction:.2f} of the plain seconds at compute fraction {fraction:.2f}"
                reasons.append(f"{way} took {share}")
    low, *_, high = quantiles(noise, n=20, method="inclusive") if noise else (0.0, 0.0)
    if (ratio := math.exp(high - low)) > SPREAD:
        reasons.append(f"the seconds for equal compute differ by a factor of {ratio:.2f}")
    if (load := max((each.load for each in timed if each.load is not None), default=0.0)) > LOAD:
        reasons.append(f"{load:.1f} processes for each core wanted to run")
    if any(each.shared for each in timed):
        reasons.append("other work used the device")
    return "; ".join(sorted(reasons))


def marked(speedup: str, disturbed: str) -> str:
    """The text of a speedup in seconds; in brackets and with "disturbed" if `disturbed` is not empty."""
    return f"({speedup}{DISTURBED})" if disturbed and any(map(str.isdigit, speedup)) else speedup
