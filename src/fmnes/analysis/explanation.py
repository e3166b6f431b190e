"""`fmnes.explain`: what failing points have in common, and which parameters matter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fmnes._text import group_reasons, short
from fmnes.analysis.effects import Importance, importance
from fmnes.analysis.prediction import Prediction, prediction
from fmnes.analysis.rules import LEAST, NAME, Rule, rule
from fmnes.reading.data import Source, Table, with_evaluations

#: Reasons that are described, and characters of one.
REASONS, REASON = 5, 80
#: Parameters that a sentence names, and the smallest share that it mentions.
NAMED, SMALL = 4, 0.01
#: Parameters of the expected optimum that a sentence names.
PLACES = 10


@dataclass(frozen=True)
class CommonFailure:
    """What the points that failed for one reason have in common.

    Attributes
    ----------
    reason : str
        The reason; empty: failures for any reason.
    count : int
        The number of evaluations.
    rule : Rule or None
        The region in which they lie; None if no simple region is clear.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(p):
    ...     if p["layers"] < 3:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return p["layers"] + p["width"] ** 2
    >>> space = {"width": fmnes.Real(0, 1), "layers": fmnes.Integer(1, 6)}
    >>> result = fmnes.minimize(simulate, space, rng=1, keep_evaluations=True)
    >>> failure = fmnes.explain(result).failures[0]
    >>> failure.reason, failure.count == result.n_infeasible, failure.rule.region
    ('mesh failed', True, 'layers ≤ 2')
    """

    reason: str
    count: int
    rule: Rule | None


@dataclass(frozen=True)
class Explanation:
    """What the evaluations of a run say about its failures and its parameters.

    All numbers are of the evaluated points, which are not spread evenly: a search evaluates most points near
    its best one. `str(explanation)` is a short text.

    Attributes
    ----------
    evaluations : int
        The evaluations that have a value or failed.
    failed : int
        The failed ones.
    failures : tuple of CommonFailure
        The most frequent reasons, and what their points have in common.
    working : Rule or None
        If more than half of the points failed: what the others have in common.
    value : Importance
        Which parameters matter for the value, of the points that have one.
    failure : Importance
        Which parameters matter for failure.
    predicted : Prediction or None
        The optimum that a model of the evaluations expects; None if the model does not order the values
        well, for noisy values, with categories and with more than 20 parameters.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(p):
    ...     if p["layers"] < 3:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return p["layers"] + p["width"] ** 2
    >>> space = {"width": fmnes.Real(0, 1), "layers": fmnes.Integer(1, 6)}
    >>> result = fmnes.minimize(simulate, space, rng=1, keep_evaluations=True)
    >>> explanation = fmnes.explain(result)
    >>> explanation.failures[0].reason, explanation.failures[0].rule.region
    ('mesh failed', 'layers ≤ 2')
    """

    evaluations: int
    failed: int
    failures: tuple[CommonFailure, ...]
    working: Rule | None
    value: Importance
    failure: Importance
    predicted: Prediction | None = None

    @property
    def about_failures(self) -> tuple[str, ...]:
        """What failing points have in common, in a sentence for each reason for which that is clear."""
        if self.failed == self.evaluations > 0:
            return (f"Every one of {self.evaluations:,} evaluated points failed.",)
        said = [_failures_in_words(one) for one in self.failures if one.rule is not None]
        if self.working is not None:
            said.append(_working_in_words(self.working))
        return tuple(said)

    @property
    def about_parameters(self) -> tuple[str, ...]:
        """Which parameters matter most for the value and for failure, in a sentence for each."""
        said = [
            _importance_in_words("The value depends", "the differences in rank", self.value),
            _importance_in_words("Failure depends", "the differences", self.failure),
        ]
        return tuple(sentence for sentence in said if sentence)

    @property
    def about_optimum(self) -> tuple[str, ...]:
        """Whether a model of the values expects a better point than the best, in at most one sentence."""
        return () if self.predicted is None else (_prediction_in_words(self.predicted),)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences; empty if nothing is clear."""
        return (*self.about_failures, *self.about_parameters, *self.about_optimum)

    def __str__(self) -> str:
        return " ".join(self.sentences) or "The evaluations show no clear pattern."


def explain(run: Source) -> Explanation:
    """Say what the failing points of a run have in common, and which parameters matter most.

    Parameters
    ----------
    run : Result, path or Run
        The result of `minimize(..., keep_evaluations=True)`, a run directory, or what `fmnes.read_run`
        returned.

    Returns
    -------
    Explanation
        Rules such as "width < 0.3" with their numbers, and shares of the parameters. What chance could give
        is left out.

    Raises
    ------
    ArgumentError
        The result has no evaluations.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(x):
    ...     return x[0] ** 2 + 0.1 * x[1] if x[1] > 0 else None
    >>> bounds = [(-1, 1), (-1, 1)]
    >>> result = fmnes.minimize(simulate, bounds=bounds, max_evaluations=200, rng=1, keep_evaluations=True)
    >>> [condition.name for condition in fmnes.explain(result).failures[0].rule.conditions]
    ['x1']
    """
    given, table = with_evaluations(run)
    return explanation_of(table, given.logs, given.noisy)


def explanation_of(table: Table, logs: frozenset[str], noisy: bool = False) -> Explanation:
    """The explanation of evaluations that are read. logs: the parameters with a log scale."""
    failed, points = table.failed, table.points
    n, bad = len(table), int(failed.sum())
    works = ~failed
    several = points if len(points) > 1 else {}  # one parameter has no other to compare with
    return Explanation(
        evaluations=n,
        failed=bad,
        failures=_common_failures(table, logs),
        working=rule(points, works, failed, failed, logs) if points and 2 * bad > n else None,
        value=importance({name: column[works] for name, column in several.items()}, table.value[works], logs),
        failure=importance(several, failed.astype(np.float64), logs),
        predicted=None if noisy else prediction(table, logs),
    )


def _common_failures(table: Table, logs: frozenset[str]) -> tuple[CommonFailure, ...]:
    """The most frequent reasons; failures for any reason, if those with a rule are the smaller part."""
    failed, works = table.failed, ~table.failed
    kinds = group_reasons(set(table.reason[failed]))
    reasons = np.array([kinds.get(reason, "") for reason in table.reason], dtype=object)
    counts = Counter(reasons[failed]).most_common(REASONS)
    found = []
    for reason, count in counts:
        these = failed & (reasons == reason)
        enough = count >= LEAST and table.points
        found.append(
            CommonFailure(reason, count, rule(table.points, these, works, failed, logs) if enough else None)
        )
    described = sum(one.count for one in found if one.rule)
    if len(kinds) > 1 and table.points and 2 * described < failed.sum():
        all_of_them = rule(table.points, failed, works, failed, logs)
        if all_of_them is not None:
            found.append(CommonFailure("", int(failed.sum()), all_of_them))
    return tuple(found)


# -- Sentences


def _failures_in_words(one: CommonFailure) -> str:
    rule = one.rule
    assert rule is not None
    which = f"{short(one.reason, REASON)}: " if one.reason else "Of all failures, "
    return (
        f"{which}{_part(rule.covered, rule.described)} {rule.described:,} points have {rule.region}; "
        f"of all {rule.points:,} evaluated points with {rule.region}, "
        f"{_percent(rule.failed, rule.points)} failed."
    )


def _working_in_words(rule: Rule) -> str:
    return (
        f"{_part(rule.covered, rule.described).capitalize()} {rule.described:,} points that work have "
        f"{rule.region}; of all {rule.points:,} evaluated points with {rule.region}, "
        f"{_percent(rule.points - rule.failed, rule.points)} work."
    )


def _part(count: int, total: int) -> str:
    return "all" if count == total else f"{_percent(count, total)} of the"


def _percent(count: int, total: int) -> str:
    """A percentage that is 0 or 100 only if it is exactly that."""
    share = round(100 * count / total)
    return f"{min(max(share, 1 if count else 0), 100 if count == total else 99)} %"


def _importance_in_words(what: str, of: str, found: Importance) -> str:
    shares = [(short(name, NAME), share) for name, share in found.shares.items() if share >= SMALL]
    if not shares:
        return ""
    explained = f"{100 * found.explained:.0f} % of {of}"
    if len(shares) == 1:
        return f"{what} most on {shares[0][0]}, which by itself explains {explained}."
    listed = [f"{name} ({100 * share:.0f} %)" for name, share in shares[:NAMED]]
    if len(shares) > NAMED:
        listed.append(f"{len(shares) - NAMED} more")
    return f"{what} most on {_and(listed)}; by themselves these explain {explained}."


def _prediction_in_words(found: Prediction) -> str:
    if not found.better:
        return "A model of the values expects no point that is better than the best by more than its error."
    listed = [f"{short(name, NAME)} = {value:.6g}" for name, value in list(found.parameters.items())[:PLACES]]
    if len(found.parameters) > PLACES:
        listed.append(f"{len(found.parameters) - PLACES} more")
    return (
        f"A model of the values expects {with_error(found.value, found.error)} at {', '.join(listed)}; "
        f"the best value is {found.best:.6g}. Evaluate this point to find out."
    )


def with_error(value: float, error: float) -> str:
    """The value with as many digits as its error allows, and the error: 10.52 ± 0.13."""
    size = max(abs(value), error)
    if not error > 0 or size > 1e15 * error:
        return f"{value:.10g} ± {error:.2g}"
    places = 1 - math.floor(math.log10(error))
    if 0 <= places <= 6 and size < 1e6:
        return f"{value:.{places}f} ± {error:.{places}f}"
    digits = max(1, math.floor(math.log10(size)) + places + 1)
    return f"{value:.{digits}g} ± {error:.2g}"


def _and(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
