"""The sampler for Optuna: failed trials are failed points, lost ones are evaluated again, and all that it
knows lies in the trials."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import fmnes
from fmnes.integrations.optuna import LOST_AFTER, FMNESSampler
from fmnes.integrations.optuna.searches import ENDED, TAG
from tests.optuna_worker import corner, open_storage
from tests.rows import through

ROOT = Path(__file__).parents[2]
#: Three numbers, as `corner` asks for them.
SPACE = {f"x{i}": FloatDistribution(-6, 10) for i in range(3)}
KINDS = ["memory", "sqlite", "journal"]
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(optuna.logging.INFO)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the sampler says through Optuna's logging."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("optuna.fmnes")
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    yield messages
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


def make_study(storage: Any = None, **options: Any) -> optuna.Study:
    options.setdefault("search_space", SPACE)
    return optuna.create_study(storage=storage, study_name="s", sampler=FMNESSampler(**options))


def run(study: optuna.Study, n: int, objective: Any = corner, **options: Any) -> optuna.Study:
    study.optimize(objective, n_trials=n, catch=(ValueError, fmnes.Lost), **options)
    return study


def points(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


def tags(study: optuna.Study) -> dict[int, dict[str, Any]]:
    found = {trial.number: trial.system_attrs.get(TAG) for trial in study.trials}
    return {number: tag for number, tag in found.items() if tag}


def names(study: optuna.Study) -> list[str]:
    """The points of the trials, as the tags name them: search, generation, slot, redraw."""
    return [tag["point"] for tag in tags(study).values()]


def evaluated(study: optuna.Study, n: int) -> list[dict[str, Any]]:
    """The first n points of the first search that were evaluated, in its own order."""
    ended = [t for t in study.trials if t.state is not TrialState.FAIL or ENDED in t.system_attrs]
    named = {t.system_attrs[TAG]["point"]: t.params for t in ended if TAG in t.system_attrs}
    order = sorted((name for name in named if name.startswith("0-")), key=numbers_in)
    return [named[name] for name in order][:n]


def numbers_in(name: str) -> list[int]:
    return [int(number) for number in name.split("-")]


def used(study: optuna.Study) -> set[int]:
    """Numbers of the trials that generations were made of."""
    return {
        number for tag in tags(study).values() for _, _, numbers in tag.get("used", ()) for number in numbers
    }


def expected(n: int, start: float | None = None, **options: Any) -> list[Any]:
    """The points of a plain search, one after another."""
    opt = fmnes.Optimizer({name: fmnes.Real(-6, 10, start=start) for name in SPACE}, rng=1, **options)
    found: list[Any] = []
    while len(found) < n:
        for id, x in opt.ask(1):
            found.append(x)
            opt.tell(id, sphere(x))
    return found


def sphere(x: dict[str, float]) -> float | None:
    return None if min(x.values()) < 0 else sum(value * value for value in x.values())


# -- what came of a trial ---------------------------------------------------------------------------------


def fails_by_exception(trial: optuna.Trial) -> float:
    return corner(trial)


def fails_by_nan(trial: optuna.Trial) -> float:
    x = [trial.suggest_float(name, -6, 10) for name in SPACE]
    return sum(value * value for value in x) if min(x) >= 0 else float("nan")


def fails_by_none(trial: optuna.Trial) -> Any:
    value = fails_by_nan(trial)
    return None if value != value else value


def fails_by_pruning(trial: optuna.Trial) -> float:
    value = fails_by_nan(trial)
    if value != value:
        trial.report(-1e9, 0)  # which Optuna takes for the value of the trial
        raise optuna.TrialPruned
    return value


def fails_by_infinity(trial: optuna.Trial) -> float:
    value = fails_by_nan(trial)
    return float("inf") if value != value else value


def fails_early(trial: optuna.Trial) -> float:
    x = []
    for name in SPACE:
        x.append(trial.suggest_float(name, -6, 10))
        if x[-1] < 0:
            raise ValueError("before the others were asked for")
    return sum(value * value for value in x)


FAILURES = [
    fails_by_exception,
    fails_by_nan,
    fails_by_none,
    fails_by_pruning,
    fails_by_infinity,
    fails_early,
]


@through("objective", FAILURES)
def test_however_a_trial_fails_its_point_has_failed(objective: Any) -> None:
    study = run(make_study(seed=1), 80, objective)
    wanted = expected(80)
    assert sum(sphere(x) is None for x in wanted) > 10
    assert [{**x, **p} for x, p in zip(wanted, points(study), strict=True)] == wanted


def test_what_is_told_as_failed_has_failed() -> None:
    study = make_study(seed=1)
    wanted = expected(40)
    for x in wanted:
        trial = study.ask(SPACE)
        assert trial.params == x
        if sphere(x) is None:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial.number, sphere(x))


def half_plane(trial: optuna.Trial) -> float:
    x = [trial.suggest_float(name, -6, 10) for name in SPACE]
    trial.set_user_attr("outside", [1.0 - sum(x), x[0] - 100.0])
    return sum(value * value for value in x)


def outside(trial: Any) -> Any:
    return trial.user_attrs["outside"]


def best_within(study: optuna.Study) -> float:
    return min(t.value for t in study.trials if max(outside(t)) <= 0)


@pytest.mark.filterwarnings("ignore:.*constraint.*")
def test_the_values_of_constraints_guide_the_search() -> None:
    space = {name: fmnes.Real(-6, 10) for name in SPACE}
    opt = fmnes.Optimizer(space, constraints={"0": (None, 0.0), "1": (None, 0.0)}, rng=1)
    wanted = []
    while len(wanted) < 400:
        for id, x in opt.ask(1):  # one after another, as trials
            wanted.append(x)
            found = {"0": 1.0 - sum(x.values()), "1": x["x0"] - 100.0}
            opt.tell(id, (sum(value * value for value in x.values()), found))
    study = optuna.create_study(sampler=FMNESSampler(seed=1, search_space=SPACE, constraints_func=outside))
    run(study, 400, half_plane)
    assert points(study) == wanted
    assert best_within(study) == pytest.approx(1 / len(SPACE), rel=0.05)


@pytest.mark.filterwarnings("ignore:.*constraint.*")
@pytest.mark.skipif(not hasattr(optuna.Trial, "set_constraint"), reason="Optuna 5 has it")
def test_constraints_that_a_trial_sets_are_the_same() -> None:
    def objective(trial: optuna.Trial) -> float:
        value = half_plane(trial)
        for name, found in zip("ab", trial.user_attrs["outside"], strict=True):
            trial.set_constraint(name, found)
        return value

    by_func = optuna.create_study(sampler=FMNESSampler(seed=1, search_space=SPACE, constraints_func=outside))
    own = optuna.create_study(sampler=FMNESSampler(seed=1, search_space=SPACE))
    assert points(run(own, 150, objective)) == points(run(by_func, 150, half_plane))


def test_maximising_is_minimising_with_the_sign_changed() -> None:
    study = optuna.create_study(direction="maximize", sampler=FMNESSampler(seed=1, search_space=SPACE))
    run(study, 60, lambda trial: -corner(trial))
    assert points(study) == expected(60)


@pytest.mark.parametrize("end", [KeyboardInterrupt, fmnes.Lost])
def test_a_trial_that_was_interrupted_or_lost_is_evaluated_again(end: type[BaseException]) -> None:
    study = make_study(seed=1)
    again = True

    def objective(trial: optuna.Trial) -> float:
        nonlocal again
        value = trial.suggest_float("x0", -6, 10)
        if trial.number == 5 and again:
            again = False
            raise end
        assert value is not None
        return corner(trial)

    try:
        run(study, 41, objective)
    except KeyboardInterrupt:
        run(study, 41 - len(study.trials), objective)
    assert study.trials[5].state is TrialState.FAIL and ENDED not in study.trials[5].system_attrs
    assert Counter(names(study))[names(study)[5]] == 2
    assert evaluated(study, 40) == expected(40)


def test_a_point_that_is_lost_too_often_has_failed_if_the_user_says_so() -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_float("x0", -6, 10) < 0:
            raise fmnes.Lost("the machine again")
        return corner(trial)

    study = run(make_study(seed=1, max_losses=2), 150, objective)
    assert max(Counter(names(study)).values()) == 2
    found = {tag["point"]: study.trials[number].params["x0"] for number, tag in tags(study).items()}
    in_order = [found[name] for name in sorted(found, key=numbers_in)]
    assert in_order[:60] == [x["x0"] for x in expected(60)]


def test_a_point_that_is_lost_again_and_again_is_warned_of(said: list[str]) -> None:
    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x0", -6, 10)
        raise fmnes.Lost

    study = run(make_study(seed=1, population_size=4), 13, objective)
    assert Counter(names(study)) == {"0-0-0-0": 4, "0-0-1-0": 3, "0-0-2-0": 3, "0-0-3-0": 3}  # in turn
    assert len(said) == 1 and "was lost 3 times" in said[0] and "max_losses" in said[0]


# -- the state is in the trials ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_sampler_goes_on_where_the_old_one_was_bit_for_bit(kind: str, tmp_path: Path) -> None:
    study = make_study(open_storage(kind, str(tmp_path / "s")), seed=1)
    run(study, 10)
    for n in (1, 1, 1, 3, 7):  # within a generation, and at its end
        study.sampler = FMNESSampler(search_space=SPACE, seed=99)  # the study has its own seed
        run(study, n)
    assert points(study) == expected(23)


def test_each_trial_with_a_sampler_of_its_own_gives_the_same_study() -> None:
    study = make_study(seed=1, method="fm-nes")
    for _ in range(60):
        study.sampler = pickle.loads(pickle.dumps(study.sampler))
        run(study, 1)
        study.sampler = copy.deepcopy(study.sampler)
    assert points(study) == expected(60, method="fm-nes")


def test_what_could_not_be_written_is_written_with_the_next_trial() -> None:
    class Full(optuna.storages.InMemoryStorage):
        full = False

        def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
            if self.full:
                raise OSError("no space left")
            super().set_trial_system_attr(trial_id, key, value)

    storage = Full()
    study = make_study(storage, seed=1, population_size=4)
    run(study, 4)
    storage.full = True
    with pytest.raises(OSError, match="no space"):
        study.ask(SPACE)
    storage.full = False
    number = study.ask(SPACE).number
    assert tags(study)[number]["used"] == [[0, 0, [0, 1, 2, 3]]]
    assert_fresh_is_the_same(study)


def test_a_copied_study_goes_on() -> None:
    study = run(make_study(seed=1), 37)
    other = optuna.create_study(sampler=FMNESSampler(search_space=SPACE))
    other.add_trials(study.trials)
    assert points(run(other, 23)) == expected(60)


def test_the_same_seed_gives_the_same_study_and_another_one_another() -> None:
    def found(seed: int) -> list[Any]:
        study = optuna.create_study(sampler=FMNESSampler(seed=seed))
        return points(run(study, 40))

    assert found(3) == found(3) != found(4)


def test_one_sampler_serves_several_studies() -> None:
    sampler, storage = FMNESSampler(seed=1, search_space=SPACE), optuna.storages.InMemoryStorage()
    studies = [optuna.create_study(sampler=sampler, storage=storage) for _ in range(2)]
    for _ in range(40):
        run(studies[0], 1)
        run(studies[1], 1, lambda trial: -fails_by_nan(trial))
    assert points(studies[0]) == expected(40) != points(studies[1])


def test_other_arguments_are_another_search_in_the_same_study() -> None:
    study = run(make_study(seed=1), 20)
    study.sampler = FMNESSampler(seed=5, search_space=SPACE, sigma0=0.1)
    run(study, 20)
    study.sampler = FMNESSampler(seed=7, search_space=SPACE)
    run(study, 20)
    found = points(study)
    assert found[:20] + found[40:] == expected(40)


@through(
    "method",
    ["fm-nes", "dx-nes-ic", "xnes", "cma-es", "cr-fm-nes", fmnes.AFMNES(population_size=8)],
)
def test_every_method_is_its_own_plain_search(method: Any) -> None:
    study = run(make_study(seed=1, method=method), 50)
    assert points(study) == expected(50, method=method)


def test_resampling_draws_again_what_failed() -> None:
    method = fmnes.Resampling(fmnes.XNES())
    study = run(make_study(seed=1, method=method), 60)
    assert points(study) == expected(60, method=method)
    assert {name.split("-")[3] for name in names(study)} > {"0", "1"}


def assert_fresh_is_the_same(study: optuna.Study) -> None:
    """A sampler that knows nothing but the trials suggests what this one suggests."""
    other = copy.deepcopy(study)  # its sampler without what it knows
    assert other.ask(SPACE).params == study.ask(SPACE).params
    assert tags(other) == tags(study)


# -- several at a time ------------------------------------------------------------------------------------


def test_points_that_are_asked_for_at_once_may_be_told_in_any_order() -> None:
    study = make_study(seed=1, population_size=6)
    wanted = expected(60, population_size=6)
    for first in range(0, 60, 6):
        asked = [study.ask(SPACE) for _ in range(6)]
        assert [trial.params for trial in asked] == wanted[first : first + 6]
        for trial in [asked[i] for i in (3, 1, 5, 0, 2, 4)]:
            value = sphere(trial.params)
            study.tell(trial, value, state=TrialState.FAIL if value is None else None)


def test_more_workers_than_points_get_those_of_further_searches_and_these_are_used() -> None:
    study = make_study(seed=1, population_size=4)
    asked = [study.ask(SPACE) for _ in range(12)]
    assert [name.split("-")[0] for name in names(study)] == 4 * ["0"] + 8 * ["1"]
    assert len({tuple(trial.params.values()) for trial in asked}) == 12
    for trial in asked:
        study.tell(trial, 1.0 + trial.number)
    asked = [study.ask(SPACE) for _ in range(12)]
    assert Counter(name[:3] for name in names(study)) == {"0-0": 4, "0-1": 4, "1-0": 8, "1-1": 8}
    assert used(study) == set(range(12))


def test_threads_never_share_a_point_and_every_trial_is_used() -> None:
    study = make_study(seed=1, population_size=6)

    def objective(trial: optuna.Trial) -> float:
        time.sleep(0.001 * (trial.number % 7))
        return corner(trial)

    run(study, 120, objective, n_jobs=4)
    assert max(Counter(names(study)).values()) == 1
    under_way = {name.split("-")[0]: name.rpartition("-")[0].rpartition("-")[0] for name in names(study)}
    last = {n for n, tag in tags(study).items() if tag["point"].startswith(tuple(under_way.values()))}
    assert used(study) | last == set(tags(study))
    assert study.best_value < 1.0


def test_two_trials_with_one_point_are_harmless() -> None:
    """Two processes that look at the same moment take the same point."""
    study = make_study(seed=1, population_size=4)
    first, second = study.ask(SPACE), study.ask()
    study._storage.set_trial_system_attr(second._trial_id, TAG, tags(study)[0])
    for name, value in first.params.items():
        second._suggest(name, FloatDistribution(value, value))
    study.tell(second, sphere(first.params) or 1.0)  # the second one is told first, …
    others = [study.ask(SPACE) for _ in range(3)]
    for trial in others:
        study.tell(trial, sphere(trial.params) or 2.0)
    after = study.ask(SPACE)
    assert used(study) == {1, 2, 3, 4}
    study.tell(first, -1e9)  # … and what the first one says comes too late
    study.tell(after, 1.0)
    assert_fresh_is_the_same(study)


def test_if_two_went_on_otherwise_the_first_is_believed() -> None:
    """Two processes saw one point ended by different trials, and wrote down different generations."""
    study = make_study(seed=1, population_size=4)
    asked = [study.ask(SPACE) for _ in range(4)]
    twin = study.ask()
    study._storage.set_trial_system_attr(twin._trial_id, TAG, tags(study)[3])
    for name, value in asked[3].params.items():
        twin._suggest(name, FloatDistribution(value, value))
    early = study.ask()  # by the other process, which has seen the twin only
    for trial, value in zip([*asked, twin], (5.0, 4.0, 3.0, 2.0, 9.0), strict=True):
        study.tell(trial, value)
    mine = study.ask(SPACE)
    assert tags(study)[mine.number]["used"] == [[0, 0, [0, 1, 2, 3]]]
    tag = {**tags(study)[mine.number], "point": "0-1-1-0", "used": [[0, 0, [0, 1, 2, 4]]]}
    study._storage.set_trial_system_attr(early._trial_id, TAG, tag)
    following = study.ask(SPACE).params
    opt = fmnes.Optimizer({name: fmnes.Real(-6, 10) for name in SPACE}, rng=1, population_size=4)
    for value, (id, _) in zip((5.0, 4.0, 3.0, 9.0), opt.ask(4), strict=True):
        opt.tell(id, value)
    assert following in [x for _, x in opt.ask(4)]
    assert_fresh_is_the_same(study)


def test_of_two_that_began_at_the_same_moment_the_first_is_believed() -> None:
    study = make_study(seed=1)
    early = study.ask()
    run(study, 3)
    tag = {**tags(study)[1], "point": "0-0-0-0", "seed": "2"}
    study._storage.set_trial_system_attr(early._trial_id, TAG, tag)
    opt = fmnes.Optimizer({name: fmnes.Real(-6, 10) for name in SPACE}, rng=2)
    wanted = [x for _, x in opt.ask(8)]
    assert study.ask(SPACE).params == wanted[1]  # the first point is that of the first trial
    assert_fresh_is_the_same(study)


def test_a_point_that_was_given_up_is_not_handed_out_while_others_are_under_way() -> None:
    study = make_study(seed=1, population_size=4, max_losses=2)
    asked = [study.ask(SPACE) for _ in range(4)]
    for trial in (asked[0], None):
        lost = trial or study.ask(SPACE)
        assert tags(study)[lost.number]["point"] == "0-0-0-0"
        study._storage.set_trial_state_values(lost._trial_id, TrialState.FAIL)  # as for a stale heartbeat
    study.ask(SPACE)
    assert names(study)[-1] == "1-0-0-0"
    for trial in asked[1:]:
        study.tell(trial, 1.0)
    number = study.ask(SPACE).number
    assert tags(study)[number]["used"] == [[0, 0, [-1, 1, 2, 3]]]


# -- lost trials ------------------------------------------------------------------------------------------


def start(kind: str, path: Path, n: int, **options: Any) -> subprocess.Popen[str]:
    script = str(ROOT / "tests" / "optuna_worker.py")
    command = [sys.executable, script, kind, str(path), str(n), json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # hangs for a minute at most


def killed(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits until it hangs in a trial, kills it, and returns which trial that was."""
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return found


def goes_on(study: optuna.Study, n: int, stale_after: float | None) -> optuna.Study:
    """Some more trials in this process, with a sampler that knows nothing of the killed one."""
    study.sampler = FMNESSampler(search_space=SPACE, population_size=6, stale_after=stale_after)
    return run(study, n)


def space_first(kind: str, path: Path, heartbeat: int | None = None, retry: bool = False) -> optuna.Study:
    """A study whose first trial has told the workers what there is to search."""
    study = make_study(open_storage(kind, str(path), heartbeat, retry), seed=1, population_size=6)
    study.enqueue_trial(dict.fromkeys(SPACE, 9.0))
    return run(study, 1)


@pytest.mark.parametrize("retry", [False, True])
def test_a_trial_whose_heartbeat_has_stopped_is_lost_and_its_point_evaluated_again(
    retry: bool, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    study = space_first("sqlite", path, heartbeat=1, retry=retry)
    lost = killed(start("sqlite", path, 50, seed=1, population_size=6, hang_at=9, heartbeat=1, retry=retry))
    deadline = time.monotonic() + 120
    while study.trials[lost["trial"]].state is TrialState.RUNNING:  # for twice the interval
        assert time.monotonic() < deadline
        time.sleep(0.2)
        optuna.storages.fail_stale_trials(study)
    goes_on(study, 12, stale_after=1e6)
    gone = study.trials[lost["trial"]]
    assert gone.state is TrialState.FAIL and ENDED not in gone.system_attrs
    again = [n for n, tag in tags(study).items() if tag["point"] == tags(study)[gone.number]["point"]]
    assert len(again) == 2 and gone.number not in used(study) and again[1] in used(study)
    assert study.trials[again[1]].params["x0"] == lost["x0"]
    assert ("retry_history" in study.trials[again[1]].system_attrs) == retry
    assert evaluated(study, 18) == expected(18, start=9.0, population_size=6)


@pytest.mark.parametrize(("kind", "stale_after"), [("sqlite", 0.5), ("journal", 0.5), ("journal", None)])
def test_without_heartbeats_a_trial_that_runs_for_too_long_is_lost(
    kind: str, stale_after: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    study = space_first(kind, path)
    lost = killed(start(kind, path, 50, seed=1, population_size=6, hang_at=9))
    again: list[int] = []
    deadline = time.monotonic() + 120
    # Without stale_after the sampler waits for a multiple of the longest trial, which depends on the load: a
    # slow one among those that follow makes it wait longer.
    while len(again) < 2 and time.monotonic() < deadline:
        longest = max(t.duration.total_seconds() for t in study.trials if t.state is TrialState.COMPLETE)
        begun = study.trials[lost["trial"]].datetime_start
        while (datetime.now() - begun).total_seconds() <= (stale_after or LOST_AFTER * longest + 1.0):
            time.sleep(0.1)
        goes_on(study, 12, stale_after)
        gone = study.trials[lost["trial"]]
        assert gone.state is TrialState.RUNNING
        again = [n for n, tag in tags(study).items() if tag["point"] == tags(study)[gone.number]["point"]]
    assert len(again) == 2 and study.trials[again[1]].params["x0"] == lost["x0"]
    assert again[1] in used(study)


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_several_processes_share_a_search_and_one_of_them_may_be_killed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    study = space_first(kind, path)
    options = {"seed": None, "population_size": 6, "stale_after": 5.0, "seconds": 0.02}
    others = [start(kind, path, 12, **options) for _ in range(2)]
    lost = killed(start(kind, path, 20, **options, hang_at=3))
    for process in others:
        assert process.wait(120) == 0
        assert process.stdout is not None
        process.stdout.close()
    time.sleep(5.0)
    goes_on(study, 15, stale_after=5.0)
    numbers_of: dict[str, list[int]] = {}
    for number, tag in tags(study).items():
        numbers_of.setdefault(tag["point"], []).append(number)
    assert lost["trial"] not in used(study)
    point = tags(study)[lost["trial"]]["point"]
    if point.startswith("0-"):  # else of a search for workers beyond a generation, which has time
        assert used(study) & set(numbers_of[point])
    # Whatever ended is used, but for what two had at once and for the generations under way.
    over = {(k, b) for tag in tags(study).values() for k, b, _ in tag.get("used", ())}
    wasted = []
    for name, numbers in numbers_of.items():
        search, generation, *_ = numbers_in(name)
        ended = [n for n in numbers if study.trials[n].state is not TrialState.RUNNING]
        if (search, generation) in over:
            assert ended and len(used(study) & set(numbers)) == 1
            wasted += ended[1:]
    assert len(wasted) <= 0.1 * len(study.trials)
    memory = optuna.create_study(study_name="s", sampler=FMNESSampler(search_space=SPACE, population_size=6))
    memory.add_trials(study.trials)
    assert_fresh_is_the_same(memory)
    assert study.best_value < 243.0  # where it began; there is no seed, and how much lower is chance


# -- spaces -----------------------------------------------------------------------------------------------


@st.composite
def distributions(draw: Any) -> Any:
    log = draw(st.booleans())
    if draw(st.booleans()):
        low = draw(st.integers(1 if log else -50, 50))
        step = 1 if log else draw(st.integers(1, 7))
        return IntDistribution(low, low + step * draw(st.integers(0, 200)), log=log, step=step)
    low = draw(st.floats(1e-6 if log else -100, 100))
    high = low + draw(st.floats(0.01, 1000))
    step = None if log else draw(st.sampled_from([None, 0.1, 0.25, 0.3, 1.0]))
    if step is None:
        return FloatDistribution(low, high, log=log)
    low = draw(st.integers(-100, 100)) / 10
    return FloatDistribution(low, float(round(low + draw(st.integers(1, 500)) * step, 6)), step=step)


@settings(max_examples=60, deadline=None)
@given(st.lists(distributions(), min_size=1, max_size=3), st.sampled_from([None, 0.02, 1.0]))
def test_every_value_is_of_its_distribution_and_none_is_sampled_independently(
    found: list[Any], sigma0: float | None
) -> None:
    class Nobody(optuna.samplers.RandomSampler):
        def sample_independent(self, *_: Any) -> Any:
            raise AssertionError("sampled independently")

    ranges = {str(i): distribution for i, distribution in enumerate(found)}
    sampler = FMNESSampler(
        search_space=ranges, seed=0, sigma0=sigma0, independent_sampler=Nobody(), population_size=4
    )
    study = optuna.create_study(sampler=sampler)
    for _ in range(12):
        trial = study.ask(ranges)
        for name, distribution in ranges.items():
            value = trial.params[name]
            single = distribution.single()
            assert single or type(value) is (int if isinstance(distribution, IntDistribution) else float)
            assert distribution._contains(distribution.to_internal_repr(value))
        study.tell(trial, sum(trial.params.values()))
    assert all(single.single() for single in ranges.values()) or tags(study)


def test_steps_give_the_decimal_numbers_that_the_user_would_write() -> None:
    ranges = {"x": FloatDistribution(0.1, 2.0, step=0.1), "n": IntDistribution(1, 99, step=7)}
    study = make_study(seed=1, search_space=ranges)
    run(
        study,
        60,
        lambda trial: trial.suggest_float("x", 0.1, 2.0, step=0.1) + trial.suggest_int("n", 1, 99, step=7),
    )
    assert {trial.params["x"] for trial in study.trials} <= {k / 10 for k in range(1, 21)}
    assert {trial.params["n"] for trial in study.trials} <= set(range(1, 100, 7))
    assert study.best_value == 1.1


def test_whole_numbers_on_a_log_scale_are_searched_by_their_logarithm() -> None:
    ranges = {"n": IntDistribution(1, 10_000, log=True), "x": FloatDistribution(1e-6, 1.0, log=True)}
    study = make_study(seed=1, search_space=ranges)
    first = study.ask(ranges).params
    others = [study.ask(ranges).params for _ in range(7)]
    assert sum(p["n"] < 1000 for p in [first, *others]) >= 5
    assert all(type(p["n"]) is int for p in others)


def test_the_space_is_known_after_one_trial_that_has_failed() -> None:
    study = optuna.create_study(sampler=FMNESSampler(seed=1))

    def objective(trial: optuna.Trial) -> float:
        value = trial.suggest_float("x", 0, 1)
        if trial.number == 0:
            raise ValueError("before it asked for more")
        value += trial.suggest_float("y", 0, 1)
        if trial.number < 3:
            raise ValueError("again")
        return value

    run(study, 12, objective)
    assert [trial.number for trial in study.trials if TAG not in trial.system_attrs] == [0]
    assert len({tag["search"] for tag in tags(study).values()}) == 2  # of x, then of x and y


def test_conditional_parameters_are_left_to_the_independent_sampler(
    said: list[str],
) -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -1, 1)
        if trial.suggest_categorical("kind", ["a", "b"]) == "b":
            x += trial.suggest_float("only b", 0, 1)
        return x + trial.suggest_float("fixed", 3, 3)

    study = optuna.create_study(sampler=FMNESSampler(seed=1))
    run(study, 40, objective)
    assert {trial.params["kind"] for trial in study.trials} == {"a", "b"}
    assert study.sampler.infer_relative_search_space(study, study.trials[0]) == {
        "kind": CategoricalDistribution(["a", "b"]),
        "x": FloatDistribution(-1, 1),
    }
    assert len({tag["search"] for tag in tags(study).values()}) <= 2
    assert len(said) == 1 and "`only b`" in said[0]


def test_categories_are_searched_and_a_choice_that_fails_is_left() -> None:
    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["fails", None, True, 1, "best"])
        x = trial.suggest_float("x", -5, 5)
        if kind == "fails":
            raise ValueError("always")
        return x**2 + (kind != "best")

    study = optuna.create_study(sampler=FMNESSampler(seed=1))
    run(study, 300, objective)
    assert study.best_params["kind"] == "best" and study.best_value < 1e-6
    assert sum(trial.params["kind"] == "fails" for trial in study.trials[150:]) < 15


def test_only_the_default_method_searches_categories(said: list[str]) -> None:
    ranges = {"kind": CategoricalDistribution(["a", "b"]), "x": FloatDistribution(-1, 1)}
    sampler = FMNESSampler(seed=1, method="xnes", search_space=ranges)
    study = optuna.create_study(sampler=sampler)
    run(study, 5, lambda t: t.suggest_float("x", -1, 1) + (t.suggest_categorical("kind", ["a", "b"]) == "a"))
    assert "x" in sampler.infer_relative_search_space(study, study.trials[0])
    assert "kind" not in sampler.infer_relative_search_space(study, study.trials[0])
    assert "`kind`" in said[0]


def test_a_start_that_is_none_of_the_choices_is_refused() -> None:
    ranges = {"kind": CategoricalDistribution(["a", "b", None]), "x": FloatDistribution(-1, 1)}
    sampler = FMNESSampler(seed=1, search_space=ranges, x0={"kind": "z"})
    with pytest.raises(fmnes.ArgumentError, match="x0: found kind = 'z', wanted a choice"):
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: trial.suggest_float("x", -1, 1), n_trials=1)


def test_a_range_that_the_user_changes_comes_back_with_its_new_ends() -> None:
    study = optuna.create_study(sampler=FMNESSampler(seed=1))
    run(study, 15, lambda trial: trial.suggest_float("x", 0, 10) + trial.suggest_float("y", 0, 1))
    run(study, 30, lambda trial: trial.suggest_float("x", 0, 2) + trial.suggest_float("y", 0, 1))
    space = study.sampler.infer_relative_search_space(study, study.trials[0])
    assert space == {"x": FloatDistribution(0, 2), "y": FloatDistribution(0, 1)}
    searches = [tags(study)[n]["search"] for n in sorted(tags(study))]
    assert searches[0] != searches[-1] and len(set(searches)) == 3


def test_a_range_that_depends_on_another_value_is_not_searched() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 10)
        return x + trial.suggest_float("y", 0, 1 + x)

    study = optuna.create_study(sampler=FMNESSampler(seed=1, warn_independent_sampling=False))
    run(study, 30, objective)
    assert study.sampler.infer_relative_search_space(study, study.trials[0]) == {
        "x": FloatDistribution(0, 10)
    }


def test_a_point_outside_of_what_the_trial_allows_has_failed() -> None:
    """The space that was given is wider than what the objective asks for."""

    def objective(trial: optuna.Trial) -> float:
        x = [trial.suggest_float("x0", 0, 10), *(trial.suggest_float(name, -6, 10) for name in ("x1", "x2"))]
        if min(x) < 0:
            raise ValueError("outside")
        return sum(value * value for value in x)

    found = points(run(make_study(seed=1), 60, objective))
    assert [(p["x1"], p["x2"]) for p in found] == [(x["x1"], x["x2"]) for x in expected(60)]


# -- what others bring ------------------------------------------------------------------------------------


def test_an_enqueued_trial_takes_no_point_and_the_best_one_is_where_the_search_starts() -> None:
    study = make_study(seed=1)
    study.enqueue_trial(dict.fromkeys(SPACE, 8.0))
    study.enqueue_trial(dict.fromkeys(SPACE, 4.0))
    study.enqueue_trial(dict.fromkeys(SPACE, -1.0))
    run(study, 20)
    study.enqueue_trial({"x0": 0.5})
    run(study, 24)
    assert study.trials[20].params["x0"] == 0.5 and -6 <= study.trials[20].params["x1"] <= 10
    assert [n for n in range(44) if n not in tags(study)] == [0, 1, 2, 20]
    assert [p for n, p in enumerate(points(study)) if n in tags(study)] == expected(40, start=4.0)
    assert_fresh_is_the_same(study)


def test_trials_of_other_samplers_are_left_alone() -> None:
    study = make_study(seed=1)
    study.sampler, ours = optuna.samplers.RandomSampler(seed=1), study.sampler
    run(study, 10)
    study.sampler = ours
    run(study, 30)
    assert points(study)[10:] == expected(30)


def test_tags_that_are_not_ours_do_no_harm() -> None:
    study = make_study(seed=1)
    study.ask(SPACE)
    search = tags(study)[0]["search"]  # of this very search
    study = make_study(seed=1)
    strange: list[Any] = [
        7,
        {},
        {"search": 3, "point": []},
        {"search": search, "point": "../x"},
        {"search": search, "point": "0-0-0-0", "seed": "x" * 5000, "used": 5},
        {"search": search, "point": "0-0-0-0", "seed": "2" * 5000},
        {"search": search, "point": "0-0-0-0", "seed": -1, "used": [["a"], [0, 0, ["b"]]], "start": {}},
    ]
    for tag in strange:
        trial = study.ask()
        study._storage.set_trial_system_attr(trial._trial_id, TAG, tag)
        study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    run(study, 20)
    assert evaluated(study, 16) == expected(16)


def test_x0_and_sigma0_are_where_and_how_wide_it_starts() -> None:
    ranges = {**SPACE, "c": CategoricalDistribution(["a", "b"]), "n": IntDistribution(0, 1000)}
    x0 = {"x0": 9.0, "x1": -5.0, "c": "b", "n": 900}
    study = make_study(seed=1, search_space=ranges, x0=x0, sigma0=0.01)
    for _ in range(8):
        found = study.ask(ranges).params
        assert abs(found["x0"] - 9.0) < 1 and abs(found["x1"] + 5) < 1 and abs(found["x2"] - 2) < 1
        assert abs(found["n"] - 900) < 60


def test_trials_of_another_study_say_where_to_start_and_how_wide() -> None:
    before = run(make_study(seed=1), 300)
    study = make_study(seed=2, source_trials=before.trials)
    asked = [study.ask(SPACE).params for _ in range(7)]
    best = before.best_params
    assert max(abs(p[name] - best[name]) for p in asked for name in SPACE) < 2
    with pytest.raises(fmnes.ArgumentError, match="source_trials: found none"):
        make_study(source_trials=[]).ask(SPACE)


def test_pruners_and_hyperbands_brackets_work() -> None:
    def objective(trial: optuna.Trial) -> float:
        value = corner(trial)
        for step in range(9):
            trial.report(value + 1 / (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    for pruner in (optuna.pruners.MedianPruner(), optuna.pruners.HyperbandPruner(max_resource=9)):
        sampler = FMNESSampler(seed=1, search_space=SPACE)
        study = optuna.create_study(sampler=sampler, pruner=pruner)
        run(study, 80, objective)
        assert {TrialState.PRUNED, TrialState.COMPLETE} <= {trial.state for trial in study.trials}
        other = copy.deepcopy(study)
        assert points(run(other, 20, objective)) == points(run(study, 20, objective))


def test_a_search_that_has_converged_is_followed_by_one_with_twice_the_population() -> None:
    study = make_study(seed=1, population_size=4, search_space={"x": FloatDistribution(-1, 1)})
    run(study, 700, lambda trial: (trial.suggest_float("x", -1, 1) - 0.3) ** 2)
    found = Counter(name.split("-")[0] for name in names(study))
    assert len(found) >= 2
    first_of_second = [name for name in names(study) if name.startswith("1-0-")]
    assert len(first_of_second) == 8


# -- arguments --------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"method": "cmaes"}, "method: found 'cmaes', wanted one of"),
    ({"population_size": 7}, "population_size: found 7, wanted an even number"),
    (
        {"population_size": 8, "method": fmnes.AFMNES(population_size=10)},
        "population_size: found 8 here and 10",
    ),
    ({"seed": -1}, "seed: found -1, wanted a whole number >= 0"),
    ({"seed": "1"}, "seed: found '1'"),
    ({"sigma0": 0}, "sigma0: found 0, wanted a number above 0"),
    ({"sigma0": 2.0}, "sigma0: found 2.0, wanted a part of each range"),
    ({"x0": [1, 2]}, "x0: found .1, 2., wanted a dict"),
    ({"x0": {}, "source_trials": []}, "x0: found together with source_trials"),
    ({"search_space": {"x": (0, 1)}}, "search_space: found"),
    ({"stale_after": -1}, "stale_after: found -1"),
    ({"max_losses": 0}, "max_losses: found 0"),
    ({"independent_sampler": 3}, "independent_sampler: found 3"),
    ({"warn_independent_sampling": "no"}, "warn_independent_sampling: found 'no'"),
    ({"popsize": 8}, "FMNESSampler: found the option 'popsize', wanted population_size"),
]


@through(("arguments", "message"), WRONG)
def test_wrong_arguments_are_named_before_the_first_trial(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=message):
        FMNESSampler(**arguments)


def test_an_x0_that_does_not_fit_is_named() -> None:
    for x0, message in [
        ({"x0": 11}, "x0: found x0 = 11, wanted"),
        ({"a": 1}, "x0: found a, wanted some of x0"),
    ]:
        with pytest.raises(fmnes.ArgumentError, match=message):
            make_study(x0=x0).ask(SPACE)


def test_several_objectives_are_refused_in_words() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=FMNESSampler())
    with pytest.raises(fmnes.ArgumentError, match="study: found 2 objectives, wanted one"):
        study.optimize(lambda trial: (0.0, 0.0), n_trials=1)


def test_without_optuna_the_message_names_the_install_line() -> None:
    code = """
import sys
sys.modules["optuna"] = None
try:
    import fmnes.integrations.optuna
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout == 'fmnes.integrations.optuna needs an optional dependency: pip install "fmnes[optuna]"\n'
    )


# -- beside Optuna's own ----------------------------------------------------------------------------------


def test_it_gets_further_than_a_sampler_that_ignores_failed_trials() -> None:
    best = {}
    for name, sampler in {
        "fmnes": FMNESSampler(seed=1),
        "cmaes": optuna.samplers.CmaEsSampler(seed=1, popsize=10),
    }.items():
        study = optuna.create_study(sampler=sampler)
        best[name] = run(study, 600, lambda trial: corner(trial, d=5)).best_value
    assert best["fmnes"] < 0.05 * best["cmaes"]


#: What an installed optunahub does with a folder, for a machine without it.
HUB = """
import importlib.util, pathlib, sys

def load_local_module(package, *, registry_root):
    init = pathlib.Path(registry_root, package, "__init__.py")
    spec = importlib.util.spec_from_file_location("hub_package", init)
    module = sys.modules["hub_package"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""


def test_the_folder_for_optunahub_follows_its_rules_and_its_example_runs(tmp_path: Path) -> None:
    folder = ROOT / "examples" / "optunahub" / "package" / "samplers" / "fmnes"
    readme = (folder / "README.md").read_text()
    _, front, text = readme.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert set(fields) == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert fields["tags"].startswith("[sampler,") and fields["license"] == "MIT License"
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {title}" for title in ("Abstract", "APIs", "Installation", "Example", "Others")
    ]
    assert not re.search("</?[a-z]+>", text)  # HTML is removed there
    signature = inspect.signature(FMNESSampler)
    assert all(f"{name}=" in text and f"`{name}`" in text for name in signature.parameters)
    assert "MIT License" in (folder / "LICENSE").read_text()
    assert "__all__" in (folder / "__init__.py").read_text()
    assert (folder / "requirements.txt").read_text() == "fmnes[optuna]\n"
    environment = dict(os.environ)
    if importlib.util.find_spec("optunahub") is None:
        (tmp_path / "optunahub.py").write_text(HUB)
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(folder / "example.py")],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+ of 300 trials failed; best 0\.0\d+ at .*'n': 8.*\n", done.stdout), done.stdout


try:
    from optuna.testing.pytest_samplers import (
        BasicSamplerTestCase,
        RelativeSamplerTestCase,
        SingleOnlySamplerTestCase,
    )
except ImportError:  # before Optuna 4.7
    pass
else:

    class TestOptunasOwnContract(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
        @pytest.fixture
        def sampler(self) -> Callable[[], FMNESSampler]:
            return lambda: FMNESSampler(seed=0)
