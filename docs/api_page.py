"""The page of all public names, which mkdocstrings makes from their docstrings."""

import galaxydit

GROUPS = {
    "Accelerate": (
        "accelerate",
        "Acceleration",
        "remove",
        "apply_galaxydit",
        "remove_galaxydit",
        "load_pipeline",
        "use_recommended_settings",
    ),
    "Reports": ("Report", "CallRecord"),
    "Calibrate": ("learn", "calibrate", "Calibration", "Profile", "load_profile"),
    "Plain steps at planned noise levels": ("noise_levels", "NoiseLevels"),
    "Predict costs": ("estimate", "Estimate"),
    "Settings by hand": ("GalaxyDiTConfig", "Schedule", "FixedSteps", "Threshold", "Online", "general_schedule"),
    "Extend": ("PROXIES", "Proxy", "Reuse", "Observer", "load_plugin"),
    "Look inside": ("describe", "TransformerDescription"),
}
OTHERS = "Other names"
PARTS_OF_PLUGINS = (
    "galaxydit.proxies.Place",
    "galaxydit.families.Family",
    "galaxydit.eval.methods.method.method",
    "galaxydit.eval.methods.method.Method",
    "galaxydit.eval.methods.accumulation.attached",
)
HELPERS = (
    "galaxydit.pipelines.published_models.recommended_settings",
    "galaxydit.pipelines.settings.GenerationSettings",
    "galaxydit.pipelines.generate.call_arguments",
    "galaxydit.pipelines.generate.generate",
    "galaxydit.pipelines.video.save_video",
)


def api_page() -> str:
    """Markdown with each public name in its group, and the functions that examples take from `galaxydit.pipelines`."""
    grouped = {name for names in GROUPS.values() for name in names}
    errors = tuple(name for name in galaxydit.__all__ if name.endswith(("Error", "Warning")))
    others = tuple(name for name in galaxydit.__all__ if name not in {*grouped, *errors})
    groups = GROUPS | {"Errors and warnings": errors} | ({OTHERS: others} if others else {})
    parts = ["# API", "Everything that `import galaxydit` offers, and what the examples of these pages use beside it."]
    for heading, names in groups.items():
        parts.append(f"## {heading}")
        parts += [f"::: galaxydit.{name}" for name in names if name in galaxydit.__all__]
    parts.append("## Parts of plugins")
    parts += [f"::: {path}" for path in PARTS_OF_PLUGINS]
    parts.append("## Models and videos")
    parts += [f"::: {path}" for path in HELPERS]
    return "\n\n".join(parts) + "\n"
