"""Workers as Ray's, without its processes, which take half a minute to import PyTorch."""

import pickle
from collections.abc import Sequence

from galaxydit.pipelines.runs import Executor, Maker, Rank, Store, Unit
from galaxydit.pipelines.runs.run import Finished, Progress, make_and_commit


class OnCopies(Executor):
    """Two workers of this process. As on Ray, each has a copy of the maker, pickled before `prepare`."""

    def work(self, groups: Sequence[Sequence[Unit]], maker: Maker, store: Store, progress: Progress) -> Finished:
        workers: dict[int, Maker] = {}
        for index, group in enumerate(groups):
            worker = index % 2
            if worker not in workers:
                workers[worker] = pickle.loads(pickle.dumps(maker))
                workers[worker].prepare(Rank())
            for unit in pickle.loads(pickle.dumps(group)):
                progress.begin(worker, unit)
                yield worker, make_and_commit(unit, workers[worker], store)
