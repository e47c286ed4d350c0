"""The card of a profile on the Hugging Face Hub."""

from galaxydit.calibration.tables import ranking_table, settings_table, target_table
from galaxydit.pipelines.table import Table
from galaxydit.profiles.schema import Profile

SHOWN_PROXIES = 8


def card_of(profile: Profile, model: str, repository: str) -> str:
    """Markdown: how to use the profile, what it rests on, its speedups, its ranking and its conditions."""
    return f"""---
library_name: diffusers
tags: [galaxydit, video-generation, acceleration]
base_model: {model}
---
# Profile of {model} for galaxydit

```python
galaxydit.accelerate(pipe, speedup=2, profile="hf://{repository}")
```

Made by `galaxydit calibrate`. It rests on {profile.basis}. {profile.evidence.reason}.

## Speedups

{Table.of(target_table(profile)).markdown()}

## Proxies by rank correlation with the error of reuse

{Table.of(ranking_table(profile)[:SHOWN_PROXIES]).markdown()}

## Conditions

{Table.of(settings_table(profile)).markdown()}
"""
