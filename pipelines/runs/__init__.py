# ruff: noqa: F401
"""Runs: many units of work, made in this process or on Ray, kept in a store, and resumed after a kill.

A unit is one piece of work, such as one generation. A maker makes units. A store is a folder that holds a record (a
JSON file) of each finished unit, done or failed. An executor has workers, which make one unit after the other; a worker
is a process, or several processes that share each video.
"""

from galaxydit.pipelines.runs.on_ray import OnRay
from galaxydit.pipelines.runs.progress import LiveProgress, progress_of
from galaxydit.pipelines.runs.run import Executor, InProcess, Maker, Outcome, Progress, Rank, new_record, results, run
from galaxydit.pipelines.runs.store import Store
from galaxydit.pipelines.runs.unit import Output, PermanentError, Record, StoredFile, Unit, hash_of
