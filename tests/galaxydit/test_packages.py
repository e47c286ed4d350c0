"""The plugin's imports go one way, so that a reader meets no cycle."""

import ast
from collections.abc import Iterator
from pathlib import Path

import galaxydit

FOLDER = Path(galaxydit.__file__).parent
# From the lowest to the highest; packages of one line do not import each other.
LAYERS = (
    ("foreign_text",),
    ("errors", "adapters", "schedulers"),
    ("plugins",),
    ("families",),
    ("files",),
    ("energy", "unsupported", "other_caches", "torch_compile", "validation", "policies"),
    ("context_parallel", "request", "stopwatch"),
    ("proxies", "extrapolation"),
    ("config",),
    ("outcome",),
    ("report_html",),
    ("report",),
    ("runtime",),
    ("profiles",),
    ("description",),
    ("acceleration",),
    ("commands",),
    ("cli",),
)
# The same for the files and folders of eval.
EVAL_LAYERS = (
    ("counted", "markdown", "measured_rows"),
    ("metrics", "published", "cost"),
    ("methods", "spectrogram"),
    ("jobs", "latency", "demo_frames", "demo_sound", "drawn_noise", "short_generations"),
    ("demo", "gpu"),
    ("compare", "compared"),
    ("measure_commands", "protocol_captions", "protocol_data"),
    ("vbench", "protocol_tables", "readme_animation"),
    ("model_page", "quality_over_speed", "tuning_cost"),
    ("general_schedule_grid", "readme_sections"),
    ("results_page",),
    ("report",),
    ("validate",),
)
OTHER_PACKAGES = ("pipelines", "calibration", "eval")
FILES = [path for path in FOLDER.rglob("*.py") if path.relative_to(FOLDER).parts[0] not in OTHER_PACKAGES]


def imports_of(path: Path) -> Iterator[str]:
    """Modules of this package that a file imports when it is imported, without the package's own name."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("galaxydit."):
            yield (node.module or "").removeprefix("galaxydit.")


def test_no_package_imports_a_higher_one() -> None:
    layer_of = {name: layer for layer, names in enumerate(LAYERS) for name in names}
    for path in FILES:
        own = path.relative_to(FOLDER).with_suffix("").parts[0]
        if own == "__init__":
            continue
        for module in imports_of(path):
            imported = module.split(".")[0]
            if own in ("commands", "cli") and imported in OTHER_PACKAGES:
                continue  # the command line imports all packages
            lower = layer_of[imported] < layer_of[own]
            assert imported == own or lower, f"{path.relative_to(FOLDER)} imports {module}"


def test_only_the_command_line_imports_commands() -> None:
    for package in OTHER_PACKAGES:
        for path in (FOLDER / package).rglob("*.py"):
            assert not [module for module in imports_of(path) if module.split(".")[0] in ("commands", "cli")], path


def test_no_file_imports_itself_by_way_of_others() -> None:
    imports = {".".join(path.relative_to(FOLDER).with_suffix("").parts): set(imports_of(path)) for path in FILES}
    while imports:
        free = {name for name, modules in imports.items() if not modules & imports.keys()}
        assert free, f"these import each other: {sorted(imports)}"
        imports = {name: modules for name, modules in imports.items() if name not in free}


def test_no_package_of_eval_imports_one_of_its_line_or_a_higher_one() -> None:
    folder = FOLDER / "eval"
    layer_of = {name: layer for layer, names in enumerate(EVAL_LAYERS) for name in names}
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("galaxydit.eval."):
                continue
            module = (node.module or "").removeprefix("galaxydit.eval.")
            imported = module.split(".")[0]
            lower = layer_of[imported] < layer_of[own]
            assert imported == own or lower, f"{path.relative_to(folder)} imports {module}"


def test_the_plugin_has_few_packages() -> None:
    assert len({path.relative_to(FOLDER).parts[0] for path in FILES}) <= 29
