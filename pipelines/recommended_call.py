"""The settings of a model's authors for a pipeline that diffusers loaded."""

from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import did_you_mean, refusal
from galaxydit.pipelines.generate import call_arguments
from galaxydit.pipelines.published_models import CHECKPOINTS, authors_settings, checkpoint_of, fitted_to
from galaxydit.pipelines.settings import GenerationSettings


def use_recommended_settings(pipe: DiffusionPipeline, model: str | None = None) -> dict[str, Any]:
    """Set the flow shift that the authors of a pipeline's model recommend, and return their other settings.

        settings = galaxydit.use_recommended_settings(pipe)
        frames = pipe("A cat walks on the grass", **settings).frames[0]

    `from_pretrained` alone leaves diffusers' defaults. The flow shift belongs to the scheduler, which is replaced by
    one of the same class and options; a scheduler without the option `flow_shift` stays. The other settings are
    arguments of the call: height and width in pixels, number of frames, steps, guidance scale and negative prompt, as
    far as the authors set them and the pipeline takes them. Call it before or after `accelerate`, between two
    generations.

    Args:
        model: name or hub id of a published model, such as "wan2.1-t2v-1.3b", for weights in a folder of one's own. By
            default the model that the pipeline was loaded as; copies of Wan are recognised by their layers.

    Raises GalaxyDiTError for a model that is not in `galaxydit.pipelines.published_models.CHECKPOINTS`, because its
    authors' settings are not known.
    """
    settings = fitted_to(pipe, _settings_of(pipe, model))
    shift = settings.flow_shift
    if shift is not None and pipe.scheduler.config["flow_shift"] != shift:
        pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, flow_shift=shift)
    return call_arguments(pipe, settings)


def _settings_of(pipe: DiffusionPipeline, model: str | None) -> GenerationSettings:
    if model is None:
        settings = authors_settings(pipe)
        name = pipe.config.get("_name_or_path")
    else:
        checkpoint = checkpoint_of(model)
        settings = None if checkpoint is None else checkpoint.settings
        name = model
    if settings is None:
        expected = "a published model, whose authors' settings are known"
        guess = did_you_mean(str(name), CHECKPOINTS)
        cure = f"pass the name of the model that it is, such as model='wan2.1-t2v-1.3b'{guess}"
        raise refusal("model", name, expected, cure)
    return settings
