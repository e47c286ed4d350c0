"""The settings of a model's authors for a pipeline that diffusers loaded."""

from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.pipelines.generate import call_arguments
from galaxydit.pipelines.published_models import recommended_settings


def use_recommended_settings(pipe: DiffusionPipeline) -> dict[str, Any]:
    """Set the flow shift that the authors of a pipeline's model recommend, and return their other settings.

        settings = galaxydit.use_recommended_settings(pipe)
        frames = pipe("A cat walks on the grass", **settings).frames[0]

    `from_pretrained` alone leaves diffusers' defaults. The flow shift belongs to the scheduler, which is replaced by
    one of the same class and options; a scheduler without the option `flow_shift` stays. The other settings are
    arguments of the call: height and width in pixels, number of frames, steps, guidance scale and negative prompt, as
    far as the authors set them and the pipeline takes them. A model that is not in
    `galaxydit.pipelines.published_models.CHECKPOINTS` has the defaults of its call. Call it before or after
    `accelerate`, between two generations.
    """
    settings = recommended_settings(pipe)
    shift = settings.flow_shift
    if shift is not None and pipe.scheduler.config["flow_shift"] != shift:
        pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, flow_shift=shift)
    return call_arguments(pipe, settings)
