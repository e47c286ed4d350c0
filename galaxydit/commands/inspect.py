"""`galaxydit inspect`: what the plugin would do to a pipeline."""

from rich.console import Console
from rich.table import Table

from galaxydit.commands.options import Model, Revision


def inspect(
    model: Model,
    revision: Revision = None,
) -> None:
    """Load a pipeline and show its transformers, how guidance reaches them, and which modules get a hook."""
    from dataclasses import asdict

    import galaxydit
    from galaxydit.pipelines.loading import load_pipeline
    from galaxydit.pipelines.settings import recommended_settings

    pipe = load_pipeline(model, revision=revision)
    console = Console()
    for part in galaxydit.describe(pipe):
        table = Table(show_header=False, title=f"{type(pipe).__name__}.{part.component}", title_justify="left")
        table.add_row("class", part.class_name)
        table.add_row("family", part.family)
        table.add_row("blocks", str(part.blocks))
        table.add_row("branches", part.branches)
        table.add_row("proxies", ", ".join(part.proxies))
        table.add_row("hooked modules", "\n".join(part.hooked))
        console.print(table)
    settings = asdict(recommended_settings(pipe))
    shown = ", ".join(f"{name} {value:g}" for name, value in settings.items() if isinstance(value, int | float))
    console.print(f"recommended settings: {shown}", highlight=False, markup=False)
