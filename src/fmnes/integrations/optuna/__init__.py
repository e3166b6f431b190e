"""A sampler for Optuna that learns from failed trials.

    study = optuna.create_study(sampler=fmnes.integrations.optuna.FMNESSampler(seed=1))
    study.optimize(objective, n_trials=1000, catch=(Exception,))

A trial that fails, is pruned or returns NaN is a failed point; one whose process died is lost, and its point
is evaluated again. All that it knows lies in the trials of the study.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fmnes.errors import MissingExtra

try:
    from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise MissingExtra("fmnes.integrations.optuna", "optuna") from error

from fmnes.arguments import check_flag, check_number, check_rng, one_population_size, shown, suggest_options
from fmnes.errors import ArgumentError, Lost
from fmnes.integrations.optuna.ranges import Ranges, is_searched, parameters_of, start_near
from fmnes.integrations.optuna.searches import (
    CONSTRAINTS,
    ENDED,
    MAX_DOUBLINGS,
    TAG,
    Ledger,
    Patience,
    Searches,
    SearchOrigin,
    logger,
    seed_of,
)
from fmnes.search.optimizer import Optimizer
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy, resolve

__all__ = ["FMNESSampler"]


# -- Checks of what users give the sampler, before the first trial.


def settled(
    method: str | Strategy | Resampling, population_size: int | None
) -> tuple[Strategy | Resampling, int | None]:
    """The method without a population of its own, and the population; tried out, so that what is wrong with
    them is said before the first trial."""
    Optimizer([0.0, 0.0], 1.0, method=method, population_size=population_size)
    strategy, max_redraws = resolve(method)
    size = one_population_size(population_size, strategy.population_size)
    if strategy.population_size is not None:
        strategy = replace(strategy, population_size=None)  # type: ignore[type-var]
    settled: Any = strategy if max_redraws is None else Resampling(strategy, max_redraws)  # type: ignore[arg-type]
    return settled, size


def check_seed(seed: Any) -> int:
    try:
        checked = check_rng(seed)[1]
    except ArgumentError:
        checked = None
    if checked is None:
        raise ArgumentError(f"seed: found {shown(seed)}, wanted a whole number >= 0, or None")
    return checked


def check_space(search_space: Any) -> Ranges:
    if not isinstance(search_space, Mapping) or not all(
        isinstance(name, str) and isinstance(found, BaseDistribution) for name, found in search_space.items()
    ):
        raise ArgumentError(
            f"search_space: found {shown(search_space)}, wanted a dict such as "
            "{'width': optuna.distributions.FloatDistribution(0, 1)}"
        )
    return {name: search_space[name] for name in sorted(search_space) if is_searched(search_space[name])}


def described(
    method: Strategy | Resampling,
    population_size: int | None,
    sigma0: float | None,
    x0: Mapping[str, Any] | None,
    source_trials: Sequence[FrozenTrial] | None,
) -> str:
    """What makes one search another one, as text that is the same in each process."""
    complete = [t for t in source_trials or () if t.state is TrialState.COMPLETE]
    source = [[t.number, t.params, t.value] for t in complete]
    arguments = [repr(method), population_size, sigma0, None if x0 is None else dict(x0), source]
    return json.dumps(arguments, sort_keys=True, default=repr)


# -- The sampler as Optuna calls it. What it knows of a study is kept in memory, and made again from the
# trials
# wherever it is not there.


#: Default: a trial counts as lost after this multiple of the longest complete trial, plus a second. A wrong
#: guess costs one repeated evaluation.
LOST_AFTER = 10.0


class FMNESSampler(BaseSampler):
    """FM-NES and related methods for Optuna: they learn from failed trials instead of ignoring them.

    Parameters
    ----------
    method : str or Strategy or Resampling, optional
        As in `fmnes.minimize`.
    x0 : dict of str to value, optional
        Where to start; by default the best of the trials that were enqueued before the search began,
        otherwise the middle.
    sigma0 : float, optional
        The first step size, as a fraction of each range (of its logarithm on a log scale); by default 0.25,
        less in more than ten dimensions.
    population_size : int, optional
        As in `fmnes.minimize`.
    seed : int, optional
        The seed. If the study has trials of this sampler already, their seed is used instead.
    search_space : dict of str to distribution, optional
        The parameters to search; by default those that all complete trials share.
    source_trials : sequence of FrozenTrial, optional
        Trials of another study; the best ones give the start and the step size.
    stale_after : float, optional
        Seconds after which a running trial is lost, and its point is handed out again; by default ten times
        the duration of the longest complete trial. (With heartbeats Optuna itself finds most lost trials.)
    max_losses : int, optional
        A point that was lost this often has failed; by default it is never given up.
    independent_sampler : optuna.samplers.BaseSampler, optional
        For all parameters that are not numbers with a range of their own; by default random.
    warn_independent_sampling : bool, optional
        Warn if `independent_sampler` is used.
    constraints_func : callable, optional
        As in Optuna's samplers: it takes a complete trial and returns numbers, which are violated above 0. Or
        call `trial.set_constraint` in the objective.

    Raises
    ------
    ArgumentError
        An argument is wrong, or the study has several objectives.

    Examples
    --------
    >>> import optuna
    >>> from fmnes.integrations.optuna import FMNESSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=FMNESSampler(seed=1))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=20)
    >>> len(study.trials)
    20
    """

    @suggest_options
    def __init__(
        self,
        *,
        method: str | Strategy | Resampling = DEFAULT_METHOD,
        x0: Mapping[str, Any] | None = None,
        sigma0: float | None = None,
        population_size: int | None = None,
        seed: int | None = None,
        search_space: Mapping[str, BaseDistribution] | None = None,
        source_trials: Sequence[FrozenTrial] | None = None,
        stale_after: float | None = None,
        max_losses: int | None = None,
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
    ) -> None:
        if constraints_func is not None and not callable(constraints_func):
            raise ArgumentError(f"constraints_func: found {shown(constraints_func)}, wanted a function")
        self._constraints_func = constraints_func
        self._method, self._population_size = settled(method, population_size)
        self._sigma0 = check_number("sigma0", sigma0, above=0)
        if self._sigma0 is not None and self._sigma0 > 1:
            raise ArgumentError(f"sigma0: found {sigma0}, wanted a part of each range, at most 1")
        if x0 is not None and not isinstance(x0, Mapping):
            raise ArgumentError(f"x0: found {shown(x0)}, wanted a dict such as {{'width': 0.5}}")
        if x0 is not None and source_trials is not None:
            raise ArgumentError("x0: found together with source_trials, which say that too; wanted one")
        self._x0 = None if x0 is None else dict(x0)
        self._source = None if source_trials is None else list(source_trials)
        self._seed = None if seed is None else check_seed(seed)
        self._space = None if search_space is None else self._searched(check_space(search_space))
        self._stale_after: float | None = check_number("stale_after", stale_after, above=0)
        self._max_losses = check_number("max_losses", max_losses, above=0, whole=True)
        check_flag("warn_independent_sampling", warn_independent_sampling)
        self._warn_independent_sampling = bool(warn_independent_sampling)
        if independent_sampler is not None and not isinstance(independent_sampler, BaseSampler):
            raise ArgumentError(
                f"independent_sampler: found {shown(independent_sampler)}, wanted a sampler of Optuna's"
            )
        random = RandomSampler(seed=None if self._seed is None else self._seed % 2**32)
        self._independent_sampler = independent_sampler or random
        self._arguments = described(self._method, self._population_size, sigma0, x0, self._source)
        self._warned: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._kept: WeakKeyDictionary[Any, dict[Any, _Kept]] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        """Without what the trials say: a copy, or another process, reads them for itself."""
        return {key: value for key, value in vars(self).items() if key not in ("_lock", "_kept")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    # -- as Optuna calls it -------------------------------------------------------------------------------

    def reseed_rng(self) -> None:
        """Reseed the independent sampler, for threads; the search has random numbers of its own."""
        self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Called by Optuna before each trial."""
        _refuse_several_objectives(study)
        self._independent_sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Called by Optuna: the parameters that are searched together."""
        if self._space is not None:
            return dict(self._space)
        with self._lock:
            return self._searched(self._read(study).ledger.spaces.space)

    def _searched(self, ranges: Mapping[str, BaseDistribution]) -> Ranges:
        """What the method searches: only the default one has categories."""
        has_categories = getattr(self._method, "name", "") == DEFAULT_METHOD
        return {
            name: found
            for name, found in ranges.items()
            if is_searched(found) and (has_categories or not isinstance(found, CategoricalDistribution))
        }

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Called by Optuna: the next point of the search."""
        _refuse_several_objectives(study)
        ranges = self._searched(search_space)
        if not ranges:
            return {}
        with self._lock:  # threads take points one after another; processes may take the same one
            kept = self._read(study)
            ledger = kept.ledger
            digest = kept.digest_of(ranges, self._arguments)
            founding = ledger.founding.get(digest)
            tag: dict[str, Any] = {"search": digest}
            if founding is None:
                founding = self._found(ledger, trial.number, ranges, study)
                tag |= {"seed": str(founding.seed), "start": founding.start}
            searches = kept.searches_of(digest, founding)
            if searches is None:
                searches = self._searches(digest, ranges, founding, ledger, study)
                kept.searches[digest] = founding, searches
            patience = Patience(datetime.now(), self._stale(ledger), self._max_losses)
            known = ledger.points.get(trial.number)
            if known is not None or trial.system_attrs.get("fixed_params"):
                # A trial that Optuna repeats, or one with values of the user's: it takes no other point.
                return dict(searches.values(known, ledger, patience, trial.number))
            point = searches.next_point(ledger, patience, trial.number)
            tag["point"] = point.name
            if searches.unwritten:
                tag["used"] = searches.unwritten
            study._storage.set_trial_system_attr(trial._trial_id, TAG, tag)
            searches.unwritten = []
            ledger.note(trial, tag)
            return dict(point.values)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Called by Optuna: a value of a parameter that is not searched."""
        _refuse_several_objectives(study)
        if self._warn_independent_sampling and param_name not in self._warned:
            space = self.infer_relative_search_space(study, trial)
            if space:  # in the first trial it is not known yet
                self._warned.add(param_name)
                logger.warning(
                    f"The parameter `{param_name}` is sampled independently, by "
                    f"`{type(self._independent_sampler).__name__}`: FMNESSampler searches what every trial "
                    "asks for, in one range (categories with the default method only). "
                    "`warn_independent_sampling=False` silences this."
                )
        return self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Called by Optuna after each trial."""
        if state is TrialState.FAIL and TAG in trial.system_attrs and not _was_lost():
            study._storage.set_trial_system_attr(trial._trial_id, ENDED, True)
        if self._constraints_func is not None and state is TrialState.COMPLETE:
            found = [float(value) for value in self._constraints_func(trial)]
            study._storage.set_trial_system_attr(trial._trial_id, CONSTRAINTS, found)
        self._independent_sampler.after_trial(study, trial, state, values)

    # -- what it knows ------------------------------------------------------------------------------------

    def _read(self, study: Study) -> _Kept:
        """What is known of a study, with all that is new in its trials."""
        kept = self._kept.setdefault(study._storage, {})
        key = study._study_id, getattr(study, "_bracket_id", None)  # Hyperband's brackets are studies apart
        trials = study.get_trials(deepcopy=False)
        if key not in kept or not kept[key].ledger.read(trials):
            kept[key] = _Kept(Ledger(), {}, [])
            kept[key].ledger.read(trials)
        return kept[key]

    def _found(self, ledger: Ledger, number: int, ranges: Ranges, study: Study) -> SearchOrigin:
        """A search that begins with the trial of this number."""
        seed = check_rng(None)[1] if self._seed is None else self._seed
        assert seed is not None
        start = None
        if self._x0 is None and self._source is None:
            start = ledger.best_enqueued(ranges, _sign(study))
        return SearchOrigin(number, seed, start)

    def _searches(
        self, digest: str, ranges: Ranges, founding: SearchOrigin, ledger: Ledger, study: Study
    ) -> Searches:
        sign = _sign(study)
        shares = {} if self._sigma0 is None else dict.fromkeys(ranges, self._sigma0)
        starts: Mapping[str, Any] = ledger.params_of(founding.start) if self._x0 is None else self._x0
        if self._source is not None:
            starts, near = start_near(self._source, ranges, sign)
            shares = shares or near
        elif self._x0 and not ranges.keys() & self._x0.keys():
            found, wanted = ", ".join(map(str, self._x0)), ", ".join(ranges)
            raise ArgumentError(f"x0: found {found}, wanted some of {wanted}")
        parameters = parameters_of(ranges, starts, shares)

        def make(k: int, constraints: tuple[str, ...]) -> Optimizer:
            size, seed = self._population_size, seed_of(founding.seed, k)
            if k and size is None:
                size = Optimizer(parameters, method=self._method).population_size
            doubled = None if size is None else size * 2 ** min(k, MAX_DOUBLINGS)
            limits = dict.fromkeys(constraints, (None, 0.0))
            return Optimizer(
                parameters, method=self._method, population_size=doubled, rng=seed, constraints=limits
            )

        return Searches(digest, ranges, sign, make)

    def _stale(self, ledger: Ledger) -> float | None:
        """With heartbeats too: a process that dies before its first one is never missed by Optuna."""
        if self._stale_after is not None or not ledger.longest:
            return self._stale_after
        return LOST_AFTER * ledger.longest + 1.0


class _Kept(NamedTuple):
    """What is known of one study."""

    ledger: Ledger
    searches: dict[str, tuple[SearchOrigin, Searches]]
    digests: list[tuple[Ranges, str]]

    def searches_of(self, digest: str, founding: SearchOrigin) -> Searches | None:
        """None: there are none yet, or they began otherwise."""
        known = self.searches.get(digest)
        return known[1] if known is not None and known[0][1:] == founding[1:] else None

    def digest_of(self, ranges: Ranges, arguments: str) -> str:
        """What makes this search another one than any other of the study."""
        for known, digest in self.digests:
            if known == ranges:
                return digest
        described = json.dumps({name: distribution_to_json(found) for name, found in ranges.items()})
        digest = hashlib.sha256((described + arguments).encode()).hexdigest()[:16] + ":"
        self.digests.append((ranges, digest))
        return digest


def _refuse_several_objectives(study: Study) -> None:
    if len(study.directions) > 1:
        raise ArgumentError(
            f"study: found {len(study.directions)} objectives, wanted one; for several there are "
            "optuna.samplers.NSGAIISampler and TPESampler"
        )


def _sign(study: Study) -> float:
    return -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0


def _was_lost() -> bool:
    """Whether the trial ended by Ctrl-C or `fmnes.Lost`, which say nothing about the point.

    Optuna does not pass the exception to the sampler; it is in the calling frame.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_run_trial":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and isinstance(frame.f_locals.get("func_err"), (KeyboardInterrupt, Lost))
