"""The page of a run, its text and figures; the report is one self-contained HTML file."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fmnes import plots
from fmnes._text import moment, near, number, short
from fmnes.analysis.explanation import Explanation, explanation_of, with_error
from fmnes.html import markup
from fmnes.html.markup import code, facts, figure, folded, section, table, text
from fmnes.parameters import Categorical, Parameter, is_log
from fmnes.plots.map import draw_map
from fmnes.reading.data import with_evaluations
from fmnes.reading.next_steps import Step, as_line, next_steps, outcome_of, why_hidden
from fmnes.reading.run import Reason, Run, read_run
from fmnes.result import Result, StopReason

# -- The plots of the page, each with its caption.


class Picture(NamedTuple):
    title: str
    words: str
    draw: Callable[[Any], Any]


PICTURES = {
    "course": Picture(
        "Convergence", "Every evaluation and the best so far; failures are at the top.", plots.convergence
    ),
    "where": Picture(
        "Where it fails",
        "Each evaluation against each parameter and each pair of them: crosses failed, the star is the best.",
        plots.slices,
    ),
    "when": Picture(
        "When it fails", "The share of failed evaluations over the run, by reason.", plots.failures
    ),
    "movement": Picture(
        "The parameters",
        "Where the search drew its points, mean and deviation, and the best.",
        plots.parameters,
    ),
    "steps": Picture(
        "Step sizes", "The step sizes: they shrink as the search converges.", plots.distribution
    ),
}


#: Inches of a plot with one panel: narrower than on its own, so that its text can be read on a phone.
NARROW = 6.2
#: The part with what the evaluations say of failures and parameters.
EXPLAINED = "explained"
#: The parts that need all evaluations.
DRAWN = (*PICTURES, EXPLAINED)
EXPLANATION = "What failures have in common, and which parameters matter"
EXPLAINED_MAP = (
    "The share of evaluated points nearby that failed, whatever their other parameters; grey: none is near. "
    "Dashed: the edge that a model expects, with the other parameters as at the best point."
)
OPTIMUM = "The best point and the optimum that a model expects"
#: Parameters in the table.
SHARES = 10


def drawn(name: str, run: Run) -> str:
    """One part of the page that needs all evaluations."""
    if name == EXPLAINED:
        return explained(run)
    picture = PICTURES[name]
    return section(picture.title, _figure(picture.title, picture.draw(run), picture.words))


def _figure(title: str, plot: Any, words: str) -> str:
    """A plot with its caption. Several panels keep their size, and scroll in a narrow window."""
    several = sum(axes.get_label() != "<colorbar>" for axes in plot.axes) > 1
    if not several:
        width, height = plot.get_size_inches()
        plot.set_size_inches(NARROW, height * NARROW / width)
    return figure(title, plots.as_svg(plot), words, several=several)


def explained(run: Run) -> str:
    """What the evaluations say of failures and parameters: sentences, shares and a map."""
    given, evaluations = with_evaluations(run)
    found = explanation_of(evaluations, given.logs, given.noisy)
    sentences = [f"<p>{text(sentence)}</p>" for sentence in found.sentences]
    if not sentences:
        sentences = [f"<p>The {found.evaluations:,} evaluations show no clear pattern.</p>"]
    plot = ""
    if found.failed and len(evaluations.points) > 1:
        plot = _figure(EXPLANATION, draw_map(given, evaluations, found), EXPLAINED_MAP)
    return section(EXPLANATION, *sentences, _optimum(found, given.best), _shares(found), plot)


def _optimum(found: Explanation, best: Mapping[str, float]) -> str:
    """The expected optimum beside the best point, if it is expected to be better."""
    there = found.predicted
    if there is None or not there.better:
        return ""
    rows = [
        (text(name), text(number(best.get(name, ""))), text(number(value)))
        for name, value in there.parameters.items()
    ]
    value = ("value", text(number(there.best)), text(with_error(there.value, there.error)))
    return table(OPTIMUM, ("parameter", "best point", "expected optimum"), [*rows, value])


def _shares(found: Explanation) -> str:
    names = list(dict.fromkeys([*found.value.shares, *found.failure.shares]))[:SHARES]
    if len(names) < 2:  # the sentence says it
        return ""
    rows = [
        (text(name), _percent(found.value.shares.get(name)), _percent(found.failure.shares.get(name)))
        for name in names
    ]
    return table(EXPLANATION, ("parameter", "share for the value", "share for failure"), rows)


def _percent(share: float | None) -> str:
    return "no clear difference" if share is None else f"{100 * share:.0f} %"


# -- One run as one file: no script, nothing from the network.


#: The parts of the page in their order.
ORDER = (
    "head",
    "next",
    "best",
    "course",
    "where",
    "failures",
    EXPLAINED,
    "when",
    "movement",
    "steps",
    "settings",
)


def report(path: Path, more: Mapping[str, str] | None = None) -> str:
    """The page of the run in this directory, as it is now. Raises RunError if there is none.

    more: further parts, {name: markup}, placed after the outcome of the run.
    """
    run = read_run(path)
    parts_of_run = parts(run, path)
    parts_of_run["settings"] += made_at()
    ordered = list(in_order({**parts_of_run, **drawings(run)}).items())
    return markup.document(run.path.name, dict([*ordered[:2], *(more or {}).items(), *ordered[2:]]))


def drawings(run: Run) -> dict[str, str]:
    return {name: drawn(name, run) for name in DRAWN}


def in_order(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: parts.get(name, "") for name in ORDER}


# -- The text parts of a run's page

#: First and last rows of a long point.
FIRST, LAST = 30, 10
#: Reasons that are shown, and parameters of a failed point.
REASONS, PARAMETERS = 40, 30
#: A point closer to a bound than this share of the range counts as at the bound.
AT_BOUND = 1e-3
#: The user set these ends; they are no errors.
_AS_ASKED = {
    StopReason.MAX_EVALUATIONS,
    StopReason.MAX_SECONDS,
    StopReason.CALLBACK,
    StopReason.INTERRUPTED,
}


def parts(run: Run, path: Path) -> dict[str, str]:
    """By name. path: the run's directory as the user wrote it."""
    return {
        "head": head(run),
        "next": why(run, path),
        "best": best(run, path),
        "failures": failures(run),
        "settings": settings(run),
    }


def head(run: Run) -> str:
    lost = sum(one.count for one in run.reasons if one.lost and not one.made_again)
    share = f" ({run.failed / run.answered:.0%})" if run.answered else ""
    result = run.result
    error = "" if result is None or result.fun_error is None else f" ± {result.fun_error:.2g}"
    entries = {
        "best value": text(f"{run.best.fun:.8g}{error}") if math.isfinite(run.best.fun) else "none yet",
        **_noise(result),
        "evaluations": _progress(run),
        "failed": f"{run.failed:,}{share}",
        **({"lost": f"{lost:,}"} if lost else {}),
        **({"repeated": f"{run.made_again:,}"} if run.made_again else {}),
        **_times(run),
    }
    return f"<h1>{text(run.path.name)}</h1>\n<p>{_what(run)}</p>\n{facts(entries)}"


def _noise(result: Result | None) -> dict[str, str]:
    if result is None or result.noise is None:
        return {}
    deviation = result.noise.standard_deviation
    return {"noise": text(f"values at the same point differ by about {deviation:.2g}")}


def _what(run: Run) -> str:
    if run.objective["kind"] == "command":
        return f"Minimises what {code(_line(run.objective['argv']))} prints or writes."
    module = run.objective.get("module")
    where = f" of {code(module)}" if module and module != "__main__" else ""
    return f"Minimises the Python function {code(run.objective['name'])}{where}."


def _line(argv: Any) -> str:
    return shlex.join(map(str, argv)) if isinstance(argv, list) else str(argv)


def _times(run: Run) -> dict[str, str]:
    began, ended = run.summary.started, run.summary.ended
    if began is None or ended is None:
        return {}
    return {"started": text(moment(began)), "time so far" if run.running else "time": _span(ended - began)}


def _progress(run: Run) -> str:
    """The evaluations, with their budget while the run is active."""
    budget = run.settings.get("max_evaluations")
    return f"{run.answered:,} of {budget:,}" if run.running and budget else f"{run.answered:,}"


def seconds_left(run: Run) -> float | None:
    """An estimate of the time until the budget is spent; None if there is no budget, or no evaluation yet.

    The history counts the time of all sessions, but not the time between them; it is as old as the last
    snapshot.
    """
    budget, limit = run.settings.get("max_evaluations"), run.settings.get("max_seconds")
    evaluations, seconds = 0.0, 0.0
    if run.history and len(run.history["seconds"]):
        evaluations, seconds = float(run.history["evaluations"][-1]), float(run.history["seconds"][-1])
    elif run.summary.started is not None and run.summary.ended is not None:
        evaluations, seconds = run.answered, run.summary.ended - run.summary.started
    if not (evaluations > 0 and seconds > 0):
        return None
    left = [] if budget is None else [(budget - run.answered) * seconds / evaluations]
    left += [] if limit is None else [limit - run.answered * seconds / evaluations]
    return max(min(left), 0.0) if left else None


def _about(seconds: float) -> str:
    """A rounded time, such as "about 12 minutes"."""
    size, unit = next((s, u) for s, u in _UNITS if seconds >= 1.5 * s or s == 1)
    number_of = max(round(seconds / size), 1)
    return f"about {number_of} {unit}{'' if number_of == 1 else 's'}"


_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def _span(seconds: float) -> str:
    if not 0 <= seconds < 1e10:  # the clock was changed
        return "unknown"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, _ = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min"


def why(run: Run, path: Path) -> str:
    """Why it stopped, and what to do next."""
    ending = outcome_of(run, path)
    steps = [Step("to stop it", as_line("stop", path))] if run.running else next_steps(ending)
    lines = [f"<p>{line}</p>" for line in _standing(run)]
    commands = [f"<p>{_sentence(step.words)}:</p>\n<pre>{text(step.command)}</pre>" for step in steps]
    return section(
        "Current state" if run.running else "Why it stopped, and what to do next", *lines, *commands
    )


def _standing(run: Run) -> Iterator[str]:
    result = run.result
    if run.running:
        left = seconds_left(run)
        time_left = "" if left is None else f", {_about(left)} left"
        yield _state("going", f"{_progress(run)} evaluations{time_left}.")
        yield text(run.state[:1].upper() + run.state[1:] + ".")
    elif result is None:
        yield _state("bad", "The process that ran it is gone.")
        yield "It was killed, or its machine was. What it had evaluated is kept."
    else:
        asked = result.stop_reason in _AS_ASKED and result.x is not None
        kind = "good" if result.success else "going" if asked else "bad"
        reason = result.stop_reason.name if result.stop_reason else "STOPPED"
        yield _state(kind, f"{reason}: {result.message}.")
        if result.second_looks:
            yield (
                "It converged at the edge of the failing region, so it was repeated from the best point "
                "with longer steps, to confirm the result."
            )
        if result.success:
            yield "It ended as a success."
        elif asked:
            yield "The search had not converged: more evaluations may find a better point."
        elif result.x is not None:
            yield "It did not end as a success: the best point may not be the best there is."
    if run.answered and not run.summary.statuses.get("value"):
        yield "No evaluation has succeeded so far; the reasons are below."


def _sentence(words: str) -> str:
    return text(words[:1].upper() + words[1:])


def _state(kind: str, words: str) -> str:
    return f"<span class='state {kind}'>{text(words)}</span>"


def best(run: Run, path: Path) -> str:
    title = "The best point"
    if run.best.x is None:
        return section(title, f"<p>{text(why_hidden(run) or 'No evaluation has succeeded yet.')}</p>")
    point = run.named(run.best.x)
    rows = [_row(name, value, (run.parameters or {}).get(name)) for name, value in point.items()]
    note = ""
    if len(rows) > FIRST + LAST:
        left_out = len(rows) - FIRST - LAST
        rows = [*rows[:FIRST], (f"<span class='faint'>… {left_out:,} more</span>", "", "", ""), *rows[-LAST:]]
        note = f"<p>All of it:</p>\n<pre>{text(as_line('show', path, '--json'))}</pre>"
    found = f"<p>Value {text(f'{run.best.fun:.10g}')}{_when(run.best.evaluation)}.</p>"
    heads = ("parameter", "value", "range", "") if run.parameters else ("", "", "", "")
    return section(title, found, table(title, heads, rows), note, _limits(run))


def _limits(run: Run) -> str:
    """Outputs with limits at the best point."""
    if not run.constraints:
        return ""
    heads = ("output", "value", "limits", "", "fun per unit")
    rows = []
    for name, one in list(run.constraints.items())[:REASONS]:
        state = "violated" if not one.satisfied else "active" if one.active else ""
        cost = f"{one.multiplier:.4g}" if one.multiplier else ""
        rows.append((text(name), f"{one.value:.6g}", text(one.limits), state, cost))
    left_out = len(run.constraints) - len(rows)
    note = f"<p>And {left_out:,} other limits.</p>" if left_out else ""
    return table("Limits at the best point", heads, rows) + note


def _when(evaluation: int) -> str:
    return f", at evaluation {evaluation:,}" if evaluation else ", known before the run"


#: Characters of the choices of a category that are shown.
CHOICES = 60


def _row(name: str, value: Any, parameter: Parameter | None) -> tuple[str, str, str, str]:
    shown = text(number(value))
    if parameter is None:
        return text(name), shown, "", ""
    if isinstance(parameter, Categorical):
        return text(name), shown, text(short(", ".join(map(str, parameter.choices)), CHOICES)), ""
    lower, upper = parameter.lower, parameter.upper
    low, high = (("−∞" if lower is None else f"{lower:g}"), ("∞" if upper is None else f"{upper:g}"))
    scale = ", log" if is_log(parameter) else ""
    share = _share(value, parameter)
    where = ""
    if share is not None:
        at = " lower bound" if share < AT_BOUND else " upper bound" if share > 1 - AT_BOUND else ""
        where = f"<span class='range'><i style='left:{share:.1%}'></i></span>{at}"
    return text(name), shown, text(f"{low} … {high}{scale}"), where


def _share(value: Any, parameter: Parameter) -> float | None:
    """Where in its range: 0 the lower bound, 1 the upper; None without both."""
    if parameter.lower is None or parameter.upper is None:
        return None
    low, high, at = float(parameter.lower), float(parameter.upper), float(value)
    if is_log(parameter):
        low, high, at = math.log(low), math.log(high), math.log(max(at, low))
    width = high / 2 - low / 2  # the full range may overflow
    share = (at / 2 - low / 2) / width if width > 0 else math.nan
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else None


def failures(run: Run) -> str:
    entries = [one for one in run.reasons if not one.made_again]
    title = "Why evaluations failed"
    if not entries:
        return section(
            title, "<p>None has failed.</p>" if run.answered else "<p>Nothing is evaluated yet.</p>"
        )
    one_by_one = [_reason(one, run.answered, opened=i == 0) for i, one in enumerate(entries[:REASONS])]
    more = f"<p>And {len(entries) - REASONS:,} other reasons.</p>" if len(entries) > REASONS else ""
    return section(title, *one_by_one, more)


def _reason(one: Reason, answered: int, opened: bool) -> str:
    share = f" ({one.count / answered:.1%})" if answered and not one.lost else ""
    kind = "lost: " if one.lost else ""
    which = "the start itself" if one.generation < 0 else f"generation {one.generation}"
    lines = [f"<p>The first: {text(moment(one.started))}, {which}.</p>"]
    if one.point:
        shown = [f"{name} = {number(value)}" for name, value in list(one.point.items())[:PARAMETERS]]
        more = f", and {len(one.point) - PARAMETERS:,} more" if len(one.point) > PARAMETERS else ""
        lines.append(f"<p>At {text(', '.join(shown))}{more}.</p>")
    if one.detail:
        lines.append(f"<p>Its output:</p>\n<pre tabindex='0'>{text(one.detail, lines=True)}</pre>")
    if one.directory:
        lines.append(f"<p>Its directory: {code(near(one.directory))}</p>")
    title = f"{one.count:,} × {kind}{text(one.reason)}{share}"
    return folded(title, f"{one.lost} {one.reason}", "\n".join(lines), opened)


def settings(run: Run) -> str:
    entries: dict[str, Any] = {"run directory": run.path, **run.search, **run.settings}
    kind = "program" if run.objective["kind"] == "command" else "function"
    entries |= {f"{kind}: {name}": value for name, value in run.objective.items() if name != "kind" and value}
    entries |= {f"made with {name}": version for name, version in run.versions.items()}
    rows = [
        (text(name.replace("_", " ")), code(_plain(value))) for name, value in entries.items() if _said(value)
    ]
    return section("Settings", table("Settings", ("", ""), rows))


def _said(value: Any) -> bool:
    return value is not None and value is not False


def _plain(value: Any) -> str:
    if value is True:
        return "yes"
    words = str(value)
    return words if len(words) <= 500 else words[:497] + "..."


def made_at() -> str:
    return f"<p class='faint'>Read on {text(moment(time.time()))}.</p>"
