"""Pyramid Attention Broadcast with branches that are separate calls."""

from contextlib import ExitStack

from galaxydit.eval.methods.pyramid import attach

STEPS = 12


def test_each_branch_reuses_its_own_attention_at_the_same_steps(latents, tiny_wan_pipeline):
    calls: list[list[str]] = []
    held: list[int] = []
    transformer, block = tiny_wan_pipeline.transformer, tiny_wan_pipeline.transformer.blocks[0]
    setting = {"self_every": 2, "cross_every": 3, "first": 800, "last": 100}
    plain = latents()
    with ExitStack() as stack, attach(tiny_wan_pipeline, setting, None) as attached:
        stack.callback(transformer.register_forward_pre_hook(lambda *_: calls.append([])).remove)
        stack.callback(transformer.register_forward_pre_hook(lambda *_: held.append(attached.bytes_held() or 0)).remove)
        for name in ("attn1", "attn2"):
            layer = getattr(block, name).to_q
            stack.callback(layer.register_forward_pre_hook(lambda *_, name=name: calls[-1].append(name)).remove)
        first, second = latents(), latents()
    assert calls[0 : 4 * STEPS : 2] == calls[1 : 4 * STEPS : 2]  # both branches of each step
    computed = {name: [step for step in range(STEPS) if name in calls[2 * step]] for name in ("attn1", "attn2")}
    # 1000 (1 - step / 12) lies within 100 to 800 for the steps 3 to 10.
    assert computed == {"attn1": [0, 1, 2, 4, 6, 8, 10, 11], "attn2": [0, 1, 2, 3, 6, 9, 11]}
    assert first.equal(second)
    assert not first.equal(plain)
    assert max(held) > 0
