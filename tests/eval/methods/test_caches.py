"""Restoring a pipeline, counting held tensors, and grids of settings."""

import torch

from galaxydit.eval.methods.caches import bytes_in, restored
from galaxydit.eval.methods.method import geometric_grid


def test_attributes_that_were_added_changed_or_deleted_are_as_before(tiny_wan_pipeline):
    block = tiny_wan_pipeline.transformer.blocks[0]
    tiny_wan_pipeline.marked = 1
    with restored(tiny_wan_pipeline):
        block.forward = lambda hidden, *rest: hidden
        tiny_wan_pipeline.marked = 2
        tiny_wan_pipeline.added = True
        del block.training
    assert "forward" not in vars(block)
    assert block.training is False
    assert tiny_wan_pipeline.marked == 1
    assert not hasattr(tiny_wan_pipeline, "added")


def test_tensors_are_found_in_containers_and_objects_and_counted_once():
    class State:
        def __init__(self, cache):
            self.cache = cache
            self.function = lambda: cache

    tensor, other = torch.zeros(4), torch.zeros(2, dtype=torch.float64)
    assert bytes_in({"a": [State((tensor, other))], "b": tensor, "c": "text"}) == 4 * 4 + 2 * 8


def test_numbers_are_spread_in_equal_ratios():
    assert geometric_grid(0.01, 1.0, 3) == (0.01, 0.1, 1.0)
