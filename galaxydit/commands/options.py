"""Options that several commands share."""

from typing import Annotated

import typer

Model = Annotated[
    str, typer.Option(help="wan-tiny, a local folder, or a hub id such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers.")
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Seed = Annotated[int, typer.Option(min=0, help="Draws the initial noise.")]
Speedup = Annotated[
    float | None, typer.Option(min=1, help="Times less compute in the blocks; 2 if nothing else is said.")
]
MaxError = Annotated[float | None, typer.Option(help="Largest expected relative error of a reused step.")]
ProfileName = Annotated[
    str | None, typer.Option("--profile", help="A shipped profile or a file; by default the one of the model.")
]
Threshold = Annotated[
    float | None, typer.Option(min=0, help="Reuse by the proxy's own distance: larger is faster and less faithful.")
]
