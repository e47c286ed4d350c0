"""The methods of a comparison with their remaining settings."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from galaxydit.eval.jobs.job import Variant
from galaxydit.eval.methods.method import Method, Setting
from galaxydit.eval.methods.plugins_behind import plugins_behind
from galaxydit.pipelines.runs.unit import hash_of


@dataclass(frozen=True)
class Contender:
    """A method with its remaining settings and, if it follows a profile file, the path of the file."""

    name: str
    method: Method
    settings: tuple[Setting, ...] = ()
    profile: Path | None = None

    def with_settings(self, indices: Sequence[int]) -> "Contender":
        return replace(self, settings=tuple(self.settings[index] for index in indices))

    def variant(self, setting: Setting) -> Variant:
        """The variant of a job that generates with a setting."""
        options, profile = dict(setting), None if self.profile is None else str(self.profile.resolve())
        files = plugins_behind(self.method, profile)
        if self.profile is not None:
            options["profile"] = profile
            files["profile"] = hashlib.sha256(self.profile.read_bytes()).hexdigest()
        return Variant(f"{self.method.slug}-{hash_of([options, files])[:8]}", self.method.slug, options, files)


def contenders_of(methods: Sequence[Method], profiles: Sequence[Path] = ()) -> list[Contender]:
    """One contender for each method; a method that follows a profile has one for each profile file.

    With several files, the names end with the stem of the file.
    """
    found: list[Contender] = []
    for method in methods:
        if not profiles or not method.follows_profile:
            found.append(Contender(method.name, method))
            continue
        for path in profiles:
            name = f"{method.name} {path.stem}" if len(profiles) > 1 else method.name
            found.append(Contender(name, method, profile=path))
    return found
