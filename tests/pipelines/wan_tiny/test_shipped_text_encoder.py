import torch

from galaxydit.pipelines.loading import load_pipeline


@torch.no_grad()
def test_the_shipped_text_encoder_tells_which_motion_belongs_to_which_colour():
    pipe = load_pipeline("wan-tiny")

    def encode(caption: str) -> torch.Tensor:
        tokens = pipe.tokenizer(caption, return_tensors="pt")
        return pipe.text_encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state[0]

    said = encode("a red ball moves left and a blue ball moves up over a plain background")
    swapped = encode("a red ball moves up and a blue ball moves left over a plain background")
    red = 1
    assert torch.linalg.vector_norm(said[red] - swapped[red]) > 0.05 * torch.linalg.vector_norm(said[red])
