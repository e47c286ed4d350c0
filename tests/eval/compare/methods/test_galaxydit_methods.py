"""The project's own methods run what a user gets."""

import galaxydit
from galaxydit import GalaxyDiTConfig
from galaxydit.profiles.resolve import settings_without_profile


def test_without_a_profile_is_what_a_model_without_one_gets(tiny_wan_pipeline):
    config = settings_without_profile(tiny_wan_pipeline, 1, GalaxyDiTConfig(), 2.0)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0) as acceleration:
        assert acceleration.config == config
        assert acceleration.config.policy.error_map is None
