"""A page for each published model, from its entry, the table of families and the predicted costs."""

import re
from functools import cache

from repository import ROOT

import galaxydit
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.cost.cost_estimate import Interval
from galaxydit.pipelines.published_models import CHECKPOINTS, Checkpoint
from galaxydit.policies.policy import FEW_STEPS, GENERAL_FEW_STEPS

MODELS = tuple(CHECKPOINTS)
FAMILIES = {  # by the beginning of a name; the first that fits counts
    "wan2.1-vace": "Wan VACE",
    "wan2.2-animate": "Wan Animate",
    "wan": "Wan",
    "skyreels-v2": "SkyReels-V2",
    "ltx-video": "LTX-Video",
    "ltx-2": "LTX-2",
    "cogvideox": "CogVideoX",
    "hunyuanvideo-1.5": "HunyuanVideo 1.5",
    "hunyuanvideo": "HunyuanVideo",
    "kandinsky-5": "Kandinsky 5",
    "kandinsky-6": "Kandinsky 6",
    "mochi": "Mochi",
    "cosmos": "Cosmos",
    "minimax-h3": "MiniMax-H3",
    "sana-video": "SANA-Video",
}
GPU = "h100"
INTRODUCTION = """\
These published models are known by name: every command takes the name as `--model`, and `load_pipeline` takes it in
Python. A name stands for the weights on the Hugging Face Hub and for the settings that their authors recommend. Any
other model of [these families](../../galaxydit/README.md#families) works by its folder or hub id. The small model that
ships here has [a page of its own](../../pipelines/wan_tiny/README.md)."""
AFTER_COMMANDS = """\
`demo` shows one prompt plain, accelerated and with half of the steps. `calibrate` measures the best steps of this
model, which is optional. `generate` makes a video with the measured profile; leave `--profile` out without one."""
TWO_TRANSFORMERS = "One plan covers both of its transformers, and nothing is predicted across the switch."
# What users of single models have to know, beside what holds for all.
OWN_LIMITS = {
    "wan2.2-t2v-a14b": TWO_TRANSFORMERS,
    "wan2.2-i2v-a14b": TWO_TRANSFORMERS,
    "wan2.2-animate-14b": "No command takes its pose and face videos. Call the pipeline in Python.",
    "ltx-2.5": "The name loads the full transformer. The distilled one of the repository takes 8 steps, all computed.",
    "minimax-h3": "It makes 5 to 15 seconds of video. References (`transformer_ref`) work in Python alone.",
    "sana-video-2b-480p": 'diffusers\' example ends its prompts with " motion score: 30."; the commands add nothing.',
    "sana-video-2b-720p": 'diffusers\' example ends its prompts with " motion score: 30."; the commands add nothing.',
}


@cache
def family_rows() -> dict[str, dict[str, str]]:
    """The rows of the table of families in galaxydit/README.md by their names, each by heading."""
    text = (ROOT / "galaxydit" / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\|(.*)\|$", text[text.index("\n| family | pipelines |") :].split("\n\n")[0], re.MULTILINE)
    heading, _, *rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return {row[0]: dict(zip(heading, row, strict=True)) for row in rows}


def family_of(name: str) -> dict[str, str]:
    """The row of the family of a published model."""
    return family_rows()[next(family for start, family in FAMILIES.items() if name.startswith(start))]


def model_index() -> str:
    """Markdown of the page that lists all models."""
    rows = []
    for name, checkpoint in CHECKPOINTS.items():
        recipe = checkpoint.settings
        size = f"{recipe.width}x{recipe.height}, {recipe.num_frames} frames"
        rows.append(f"| [`{name}`]({name}.md) | {family_of(name)['family']} | {size} | {recipe.steps} |")
    return "\n".join(
        (
            "# Models",
            "",
            INTRODUCTION,
            "",
            "| name | family | authors' video | steps |",
            "|---|---|---|---:|",
            *rows,
            "",
        )
    )


def model_page(name: str) -> str:
    """Markdown of the page of one published model."""
    checkpoint, family = CHECKPOINTS[name], family_of(name)
    return "\n\n".join(
        (
            f"# {name}",
            f"[{checkpoint.hub_id}](https://huggingface.co/{checkpoint.hub_id}), of the family {family['family']}.",
            "## Three commands",
            commands(name),
            AFTER_COMMANDS,
            python_example(name),
            "## What works",
            works(family),
            "## What was verified",
            "Classes and pipelines of this family are tested with random weights on a CPU. **These weights were never "
            "run here**, so the quality on them is unknown until you measure it "
            f"(`galaxydit validate --model {name} --out runs/validate`). No profile of this model is shipped, so the "
            "general schedule chooses the steps until you calibrate.",
            "## The authors' settings",
            settings_table(checkpoint),
            "## Seconds and memory",
            costs(name),
            "## Limits",
            limits(name, checkpoint),
        )
    )


def inputs_of(name: str) -> str:
    """The options that give a model the images it starts from."""
    if "flf2v" in name:
        return " --image first.png --last-image last.png"
    return " --image first.png" if "i2v" in name or "video2world" in name else ""


def commands(name: str) -> str:
    if "animate" in name:
        return "No command takes the pose and face videos of this model: use Python."
    prompt = f'--prompt "A cat walks on the grass"{inputs_of(name)}'
    return "\n".join(
        (
            "```",
            f"galaxydit demo --model {name} {prompt}",
            f"galaxydit calibrate --model {name}{inputs_of(name)} --out {name}.json",
            f"galaxydit generate --model {name} --profile {name}.json --out cat.mp4 \\",
            f"    {prompt}",
            "```",
        )
    )


def python_example(name: str) -> str:
    if "animate" in name or inputs_of(name):
        call = "video = pipe(...)  # with the prompt, images and settings that you pass to diffusers"
        settings = ()
    else:
        settings = ("from galaxydit.pipelines.generate import generate",)
        call = 'video = generate(pipe, "A cat walks on the grass", recommended_settings(pipe), seed=0)'
    names = ("from galaxydit.pipelines.loading import load_pipeline",)
    recipe = ("from galaxydit.pipelines.published_models import recommended_settings",) if settings else ()
    lines = ("import galaxydit", *settings, *names, *recipe, "")
    made = (f'pipe = load_pipeline("{name}")', "galaxydit.accelerate(pipe, speedup=2)", call)
    return "\n".join(("In Python:", "", "```python", *lines, *made, "```"))


def works(family: dict[str, str]) -> str:
    rows = {
        "pipelines of diffusers": family["pipelines"],
        "guidance": family["guidance"],
        "what can be predicted (`reuse`)": family["reuse"],
        "LoRA": family["LoRA"],
        "torch.compile of the blocks": family["regional compile"],
        "several GPUs for one video (context parallel)": family["context parallel"],
    }
    return "\n".join(
        ("| feature | of this family |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()))
    )


def settings_table(checkpoint: Checkpoint) -> str:
    recipe = checkpoint.settings
    rows = {
        "width x height": f"{recipe.width} x {recipe.height} pixels",
        "frames": recipe.num_frames,
        "frames per second": f"{recipe.fps:g}",
        "steps": recipe.steps,
        "guidance scale": "that of the checkpoint" if recipe.guidance_scale is None else f"{recipe.guidance_scale:g}",
        "second guidance scale": None if recipe.guidance_scale_2 is None else f"{recipe.guidance_scale_2:g}",
        "flow shift": "that of the checkpoint" if recipe.flow_shift is None else f"{recipe.flow_shift:g}",
        "negative prompt": "yes" if recipe.negative_prompt else "none",
    }
    shown = [f"| {name} | {value} |" for name, value in rows.items() if value is not None]
    intro = "`load_pipeline` sets the flow shift, and `recommended_settings(pipe)` returns the others:"
    return "\n".join((intro, "", "| setting | value |", "|---|---|", *shown))


def costs(name: str) -> str:
    """Predicted seconds and memory on one GPU."""
    try:
        found = galaxydit.estimate(name, gpu=GPU, speedup=2.0)
    except GalaxyDiTError as error:
        return f"Not predicted: {error}"
    if found.accelerated is None:
        return "Not predicted."
    memory = found.plain.peak_memory_bytes
    fits = "" if found.fits else " **It does not fit into one such GPU: use `--offload model`, or several GPUs.**"
    return (
        f"**Predicted, not measured**, for one {found.gpu} and the authors' settings, by "
        f"`galaxydit estimate --model {name} --gpu {GPU} --speedup 2`:\n\n"
        "| | plain | `speedup=2` |\n|---|---:|---:|\n"
        f"| seconds per video | {shown(found.plain.batch_latency_s)} | {shown(found.accelerated.batch_latency_s)} |\n"
        f"| memory at the peak, GB | {shown(memory, 1e9)} | {found.accelerated.plugin_bytes / 1e6:.0f} MB more |\n\n"
        f"Brackets hold the expected range.{fits} "
        "[How a prediction is made](../../eval/README.md#how-a-prediction-is-made)."
    )


def shown(value: Interval, unit: float = 1.0) -> str:
    """Such as "72 (67 to 78)"."""
    return f"{value.value / unit:,.0f} ({value.low / unit:,.0f} to {value.high / unit:,.0f})"


def limits(name: str, checkpoint: Checkpoint) -> str:
    items = []
    steps = checkpoint.settings.steps
    if steps is not None and steps <= FEW_STEPS:
        items.append(f"With its {steps} steps, every step is computed: they differ too much to predict any.")
    elif steps is not None and steps <= GENERAL_FEW_STEPS:
        items.append(f"With its {steps} steps, nothing is saved until you calibrate, and a warning says so.")
    else:
        items.append(
            f"With {GENERAL_FEW_STEPS} steps or fewer and no profile, every step is computed; with {FEW_STEPS} or "
            "fewer, always."
        )
    items.append("A PSNR is promised for calibrated settings alone: `min_psnr` needs `calibrate --budget full`.")
    if name in OWN_LIMITS:
        items.append(OWN_LIMITS[name])
    items.append("[What all families share](../../galaxydit/README.md#families).")
    return "\n".join(f"- {item}" for item in items)
