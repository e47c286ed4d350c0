"""Every stage of the training at a tiny size: killed and resumed, it must end where an uninterrupted run ends."""

import json
import os
from shutil import copy, copytree

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLWan, WanPipeline
from safetensors.torch import load_file

from galaxydit.pipelines.wan_tiny.tools import build, checkpoints, drawing, train, training_latents, transformer
from galaxydit.pipelines.wan_tiny.tools.checkpoints import load_checkpoint, save_checkpoint
from galaxydit.pipelines.wan_tiny.tools.denoiser import draw_batch

STEPS = 4


class KilledError(Exception):
    pass


@pytest.fixture(scope="module")
def tiny_parts(tiny_transformer):
    """Small models, a checkpoint at every step, shards of four clips, and no compiling."""
    vae_config = dict(build.build_vae().config) | {"base_dim": 4, "decoder_base_dim": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "build_vae", lambda: AutoencoderKLWan.from_config(vae_config))
        patch.setattr(build, "build_transformer", lambda: tiny_transformer(2).train())
        patch.setattr(torch.nn.Module, "compile", lambda self: None)
        patch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(training_latents, "SHARD_CLIPS", 4)
        yield


@pytest.fixture(scope="module")
def made_latents(tiny_parts, tmp_path_factory):
    """The folder of a training after its first two stages."""
    folder = tmp_path_factory.mktemp("latents")
    train.train_vae(folder, steps=1, batch=2, peak=0.02)
    train.encode_clips(folder, clips=8, batch=2)
    return folder


@pytest.fixture
def work(made_latents, tmp_path):
    """A copy of that folder for each test."""
    return copytree(made_latents, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def whole_training(made_latents, tmp_path_factory):
    """The checkpoint of a transformer trained without interruption."""
    folder = copytree(made_latents, tmp_path_factory.mktemp("whole"), dirs_exist_ok=True)
    train.train_transformer(folder, STEPS, batch=3, peak=1e-3)
    return folder / "transformer.pt"


def kill_at(monkeypatch, step):
    """From now on, training dies right before this step."""
    original = checkpoints.training_steps

    def dying_steps(*arguments, **content):
        for current, bar in original(*arguments, **content):
            if current == step:
                raise KilledError
            yield current, bar

    for module in (train, transformer):
        monkeypatch.setattr(module, "training_steps", dying_steps)


def assert_same(left, right):
    """Equal to the last bit, through dictionaries and lists."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, torch.Tensor):
        torch.testing.assert_close(left, right, atol=0, rtol=0)
    else:
        assert left == right


def test_a_killed_autoencoder_training_ends_like_an_uninterrupted_one(tmp_path, monkeypatch, tiny_parts):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    train.train_vae(whole, STEPS, batch=2, peak=0.02)
    with monkeypatch.context() as patch:
        kill_at(patch, step=2)
        with pytest.raises(KilledError):
            train.train_vae(killed, STEPS, batch=2, peak=0.02)
    assert load_checkpoint(killed / "vae.pt")["step"] == 2
    train.train_vae(killed, STEPS, batch=2, peak=0.02)
    assert_same(load_checkpoint(killed / "vae.pt"), load_checkpoint(whole / "vae.pt"))


def test_the_autoencoder_is_changed_by_training(tmp_path, tiny_parts):
    train.train_vae(tmp_path, 1, batch=2, peak=0.02)
    first = load_checkpoint(tmp_path / "vae.pt")["model"]
    train.train_vae(tmp_path, 2, batch=2, peak=0.02)
    second = load_checkpoint(tmp_path / "vae.pt")["model"]
    assert not torch.equal(first["decoder.conv_in.weight"], second["decoder.conv_in.weight"])


def test_latents_go_on_after_a_kill_and_belong_to_their_captions(tmp_path, monkeypatch, tiny_parts):
    train.train_vae(tmp_path, 1, batch=2, peak=0.02)
    written = []

    def save_one(content, path):
        if written:
            path.write_bytes(b"half a shard")
            raise KilledError
        written.append(path)
        original(content, path)

    original = training_latents.save_file
    with monkeypatch.context() as patch:
        patch.setattr(training_latents, "save_file", save_one)
        with pytest.raises(KilledError):
            train.encode_clips(tmp_path, clips=8, batch=2)
    shard = tmp_path / "latents" / "000000.safetensors"
    before = shard.stat().st_mtime_ns
    train.encode_clips(tmp_path, clips=8, batch=2)
    assert shard.stat().st_mtime_ns == before
    clips, tokens = training_latents.load_latents(tmp_path)
    assert clips.shape == (8, build.LATENT_CHANNELS, 5, 16, 16)
    assert tokens.shape == (8, training_latents.TEXT_TOKENS)
    captions = [drawing.draw_clip(index, training_latents.CLIP_SEED)[0] for index in range(8)]
    assert build.build_tokenizer().batch_decode(tokens[:, :-1], skip_special_tokens=True) == [
        caption.replace(",", " ,") for caption in captions
    ]
    vae = training_latents.load_trained_vae(tmp_path)
    with torch.no_grad():
        expected = vae.encode(
            training_latents.as_video(drawing.draw_clip(5, training_latents.CLIP_SEED)[1])[None]
        ).latent_dist.mode()[0]
    torch.testing.assert_close(clips[5].float(), expected, atol=5e-3, rtol=5e-3)


def test_a_killed_transformer_training_ends_like_an_uninterrupted_one(work, monkeypatch, whole_training):
    with monkeypatch.context() as patch:
        kill_at(patch, step=2)
        with pytest.raises(KilledError):
            train.train_transformer(work, STEPS, batch=3, peak=1e-3)
    assert load_checkpoint(work / "transformer.pt")["step"] == 2
    train.train_transformer(work, STEPS, batch=3, peak=1e-3)
    assert_same(load_checkpoint(work / "transformer.pt"), load_checkpoint(whole_training))


def test_a_killed_cool_down_ends_like_an_uninterrupted_one_and_goes_on_from_the_training(
    work, monkeypatch, whole_training
):
    copy(whole_training, work)
    before = load_checkpoint(work / "transformer.pt")
    train.cool_down(work, STEPS, batch=3, peak=1e-3)
    os.rename(work / "cooldown.pt", work / "whole.pt")
    with monkeypatch.context() as patch:
        kill_at(patch, step=2)
        with pytest.raises(KilledError):
            train.cool_down(work, STEPS, batch=3, peak=1e-3)
    train.cool_down(work, STEPS, batch=3, peak=1e-3)
    cooled = load_checkpoint(work / "cooldown.pt")
    assert_same(cooled, load_checkpoint(work / "whole.pt"))
    assert_same(load_checkpoint(work / "transformer.pt"), before)
    assert cooled["earlier_steps"] == STEPS
    name = "transformer.blocks.0.attn1.to_q.weight"
    assert 0 < (cooled["model"][name] - before["model"][name]).abs().max() < 0.01


def test_training_stops_at_its_time_limit_and_goes_on_to_the_same_end(work, whole_training):
    for step in range(1, STEPS + 1):
        train.train_transformer(work, STEPS, batch=3, peak=1e-3, minutes=0.0)
        assert load_checkpoint(work / "transformer.pt")["step"] == step
    assert_same(load_checkpoint(work / "transformer.pt"), load_checkpoint(whole_training))


def test_training_keeps_the_weights_in_16_bits_and_a_log(work, monkeypatch):
    monkeypatch.setattr(transformer, "LOG_STEPS", 1)
    train.train_transformer(work, 2, batch=3, peak=1e-3)
    weights = load_file(work / "transformer.safetensors")
    average = load_checkpoint(work / "transformer.pt")["average"]
    build.build_transformer().load_state_dict(weights)
    for name, value in weights.items():
        assert_same(value, average[f"transformer.{name}"].bfloat16())
    start, *lines = [json.loads(line) for line in (work / "transformer.jsonl").read_text().splitlines()]
    assert (start["steps"], start["batch"], start["peak"], start["clips"]) == (2, 3, 1e-3, 8)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["loss"] > 0 and line["branch_difference"] > 0 for line in lines)


def test_clips_with_an_orbit_are_drawn_as_often_as_their_weight_says(work, monkeypatch):
    _, tokens = training_latents.load_latents(work)
    has_orbit = (tokens == build.build_tokenizer().convert_tokens_to_ids("orbits")).any(dim=1)
    assert 0 < has_orbit.sum() < len(tokens)
    batches = []

    def spy(*arguments):
        batches.append(draw_batch(*arguments))
        return batches[-1]

    monkeypatch.setattr(transformer, "draw_batch", spy)
    train.train_transformer(work, 2, batch=16, peak=1e-3, orbits=0.0)
    assert not has_orbit[torch.cat([batch.rows for batch in batches])].any()


def test_latents_of_two_worlds_do_not_mix(work):
    with pytest.raises(ValueError, match="expected first"):
        train.encode_clips(work, clips=16, batch=2, world=training_latents.World.VARIED)
    (work / "latents" / "world.txt").unlink()
    with pytest.raises(ValueError, match="earlier version"):
        train.encode_clips(work, clips=16, batch=2)


def test_training_normalises_by_the_statistics_of_the_weights_it_goes_on_from(work):
    train.train_transformer(work, steps=1, batch=2, peak=0.02)
    checkpoint = load_checkpoint(work / "transformer.pt")
    save_checkpoint(work / "transformer.pt", checkpoint | {"mean": checkpoint["mean"] + 1.0})
    train.train_transformer(work, steps=2, batch=2, peak=0.02)
    assert_same(load_checkpoint(work / "transformer.pt")["mean"], checkpoint["mean"] + 1.0)


def test_the_export_loads_offline_and_generates(work, monkeypatch):
    train.train_transformer(work, 2, batch=2, peak=1e-3)
    train.export(work, work / "weights")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pipe = WanPipeline.from_pretrained(work / "weights")
    pipe.set_progress_bar_config(disable=True)
    average = load_checkpoint(work / "transformer.pt")["average"]
    name = "blocks.1.ffn.net.2.weight"
    torch.testing.assert_close(
        pipe.transformer.state_dict()[name].bfloat16(), average[f"transformer.{name}"].bfloat16(), atol=0, rtol=0
    )
    clips = training_latents.load_latents(work)[0].float()
    np.testing.assert_allclose(pipe.vae.config.latents_std, clips.std(dim=(0, 2, 3, 4)), rtol=1e-4)
    np.testing.assert_allclose(pipe.vae.config.latents_mean, clips.mean(dim=(0, 2, 3, 4)), atol=1e-4)
    frames = pipe(
        "a red ball moves left over a plain background",
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
    ).frames
    assert frames.shape == (1, 5, 32, 32, 3)
    assert np.isfinite(frames).all()


def test_a_kill_while_writing_a_checkpoint_leaves_the_previous_one(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    save_checkpoint(path, {"step": 1})

    def half_save(content, file):
        file.write_bytes(b"half")
        raise KilledError

    monkeypatch.setattr(torch, "save", half_save)
    with pytest.raises(KilledError):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1}


def test_a_stage_without_the_one_before_says_which_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="run the stage 'vae' first"):
        train.encode_clips(tmp_path, clips=1, batch=1)
    with pytest.raises(FileNotFoundError, match="run the stage 'latents' first"):
        train.train_transformer(tmp_path, steps=1, batch=1, peak=1e-3)
    with pytest.raises(FileNotFoundError, match="run the stage 'transformer' first"):
        train.export(tmp_path, tmp_path / "weights")


def test_the_longest_caption_fits_into_the_training_tokens():
    longest = (
        "a red ball moves left, a blue ball moves left and a green ball moves left over a plain background",
        "a red ball moves left in front of a blue ball over a plain background",
    )
    tokenizer = build.build_tokenizer()
    assert max(len(tokenizer(caption).input_ids) for caption in longest) <= training_latents.TEXT_TOKENS
    assert tokenizer.unk_token_id not in tokenizer(longest[0]).input_ids


def test_training_goes_on_from_an_exported_folder(tmp_path, made_latents):
    copytree(made_latents, tmp_path / "first")
    train.train_transformer(tmp_path / "first", steps=1, batch=2, peak=0.02)
    train.export(tmp_path / "first", tmp_path / "weights")
    (tmp_path / "second").mkdir()
    train.resume(tmp_path / "second", tmp_path / "weights", vae_rate=0.02, rate=0.02)
    before, after = (torch.load(tmp_path / name / "transformer.pt") for name in ("first", "second"))
    for name, value in before["average"].items():
        torch.testing.assert_close(after["model"][name], value, atol=0.01, rtol=0.01)  # the transformer is in bfloat16
    assert_same(before["mean"], after["mean"])
    assert_same(torch.load(tmp_path / "first" / "vae.pt")["model"], torch.load(tmp_path / "second" / "vae.pt")["model"])
    train.encode_clips(tmp_path / "second", clips=4, batch=2)
    train.train_transformer(tmp_path / "second", steps=2, batch=2, peak=0.02)
    assert torch.load(tmp_path / "second" / "transformer.pt")["step"] == 2


@torch.no_grad()
def test_the_text_encoder_tells_which_motion_belongs_to_which_colour():
    encoder, tokenizer = build.build_text_encoder(), build.build_tokenizer()

    def encode(caption):
        return encoder(**tokenizer(caption, return_tensors="pt")).last_hidden_state[0]

    said = encode("a red ball moves left and a blue ball moves up over a plain background")
    swapped = encode("a red ball moves up and a blue ball moves left over a plain background")
    red = 1
    assert torch.linalg.vector_norm(said[red] - swapped[red]) > 0.1 * torch.linalg.vector_norm(said[red])


def test_the_text_encoder_is_not_trained(work):
    train.train_transformer(work, steps=1, batch=2, peak=0.02)
    first = torch.load(work / "transformer.pt")["model"]
    train.train_transformer(work, steps=2, batch=2, peak=0.02)
    second = torch.load(work / "transformer.pt")["model"]
    same = {name: torch.equal(first[name], second[name]) for name in first}
    assert all(equal for name, equal in same.items() if name.startswith("text_encoder."))
    assert not all(same.values())
