"""A transformer with two outputs, such as picture and sound, each linear in the noise level of its own stream."""

import torch
from torch import Tensor, nn

from galaxydit.families import NO_GUIDANCE, Family, OutputStream

VIDEO, AUDIO = (1, 4, 3, 8, 8), (1, 10, 6)
FAMILY = Family(
    name="Two streams",
    class_name="TwoStreams",
    branches=NO_GUIDANCE,
    time_embedding=None,
    moving=("audio_hidden_states", "audio_timestep"),
    streams=(OutputStream(), OutputStream("audio_hidden_states", "audio_scheduler")),
)


class TwoStreams(nn.Module):
    """Timesteps are 1000 times the noise levels."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.transformer_blocks = nn.ModuleList([nn.Identity()])
        self.ends = [torch.randn(2, *shape, generator=generator) for shape in (VIDEO, AUDIO)]

    def forward(
        self, hidden_states: Tensor, audio_hidden_states: Tensor, timestep: Tensor, audio_timestep: Tensor
    ) -> tuple[Tensor, Tensor]:
        (video, video_slope), (audio, audio_slope) = self.ends
        return video + timestep / 1000 * video_slope, audio + audio_timestep / 1000 * audio_slope


def latents() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(VIDEO, generator=generator), torch.randn(AUDIO, generator=generator)
