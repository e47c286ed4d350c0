"""A plugin of galaxydit: a compared method, a proxy and a family.

Installed, it is known to Python and to every command. Without installing it, name the file:

    galaxydit compare --plugin pipelines/examples/plugin/galaxydit_example.py --methods "every third step,fewer steps"
"""

from typing import Any

from diffusers import DiffusionPipeline
from torch.nn.functional import avg_pool3d

from galaxydit import FixedSteps, Proxy
from galaxydit.eval.methods.accumulation import attached
from galaxydit.eval.methods.method import Context, Setting, method
from galaxydit.families import CONCATENATED, Family
from galaxydit.proxies import Place

POOLED_LATENT = Proxy(
    name="pooled_latent",
    place=Place.LATENT,
    cost=0.0,
    source="galaxydit-example",
    tensor=lambda latent, sigma: avg_pool3d(latent.float(), (1, 2, 2)),  # CPUs have no bfloat16 pooling
    offered=lambda family: family.plain_latent,
)

# A transformer of images, which galaxydit does not list.
PIXART = Family(
    name="PixArt",
    class_name="PixArtTransformer2DModel",
    branches=CONCATENATED,
    stacks=("transformer_blocks",),
    is_chain=True,
    time_embedding=("timestep", 4),
    parts={"self_attention": "attn1", "cross_attention": "attn2", "feed_forward": "ff"},
    plain_latent=False,  # it has no frames
)


def settings(steps: int) -> list[Setting]:
    """The first steps that are all computed, from accurate to fast; `steps` says for how many steps they are."""
    return [{"first": first, "steps": steps} for first in (steps // 2, steps // 5, 1)]


@method("every third step", "control", settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    first, steps = setting["first"], setting["steps"]
    return attached(pipe, FixedSteps((*range(first), *range(first + 2, steps, 3))))
