"""Further outputs beside the value: what is taken for one, and that it comes through every way there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import outputs
from fmnes.evaluation.workers import messages
from fmnes.outcome import Outcome, WrongType, from_return, infeasible, lost
from tests.rows import through


class Scalar:
    """A number of another library: no array, but it says what it is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __float__(self) -> float:
        if isinstance(self.value, Exception):
            raise self.value
        return float(self.value)


class Tensor(Scalar):
    """As of torch, while it has a gradient."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


# -- what an objective may return -------------------------------------------------------------------------


@through(
    ("found", "kept"),
    [
        (3.1, 3.1),
        (3, 3),
        (True, True),
        (None, None),
        ("steel", "steel"),
        ("", ""),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(False), False),
        (np.str_("iron"), "iron"),
        (np.array([2.5]), 2.5),
        (np.array(4), 4),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (Tensor(1.5), 1.5),
        (math.inf, math.inf),
        (2**63 - 1, 2**63 - 1),
        (2**63, float(2**63)),
        ("a\udcff", "a\\udcff"),
    ],
)
def test_outputs_become_plain(found: Any, kept: Any) -> None:
    for returned in ((1.5, {"mass": found}), [1.5, {"mass": found}]):
        outcome = from_return(returned)
        assert (outcome.status, outcome.value) == ("value", 1.5)
        assert outcome.outputs == {"mass": kept}
        assert type(outcome.outputs["mass"]) is type(kept)


@through(
    ("value", "reason"), [(math.nan, "returned NaN"), (None, "returned None"), (-math.inf, "returned -inf")]
)
def test_a_failed_value_keeps_its_outputs(value: Any, reason: str) -> None:
    outcome = from_return((value, {"mass": 3.1}))
    assert (outcome.status, outcome.reason, outcome.outputs) == ("infeasible", reason, {"mass": 3.1})


def test_no_outputs_are_none() -> None:
    assert from_return((1.0, {})) == Outcome("value", 1.0)
    assert from_return(1.0).outputs is None


class Broken(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Any:
        raise ValueError("no")

    def __len__(self) -> int:
        return 1


@through(
    ("returned", "words"),
    [
        ((1.0, {"mass": [1.0, 2.0]}), "the output 'mass' of type list"),
        ((1.0, {"mass": 1j}), "the output 'mass' of type complex"),
        ((1.0, {"mass": np.complex128(1)}), "the output 'mass' of type complex128"),
        ((1.0, {"mass": b"x"}), "the output 'mass' of type bytes"),
        ((1.0, {"mass": {"a": 1}}), "the output 'mass' of type dict"),
        ((1.0, {"mass": Scalar(ValueError("no"))}), "the output 'mass' of type Scalar"),
        ((1.0, {3: 1.0}), "an output of the name something of type int"),
        ((1.0, {" ": 1.0}), "an output of the name ' '"),
        ((1.0, {str(i): 1 for i in range(1001)}), "1001 outputs; wanted at most 1000"),
        ((1.0, {"log": "x" * 10_000}), "outputs of 100.. bytes; wanted at most 10000"),
        ((1.0, Broken()), r"outputs that cannot be read \(ValueError: no\)"),
        ((1.0, {"big": 10**400}), "the output 'big' of type int"),
        ((1.0, 2.0), r"the objective returned tuple of shape \(2,\)"),
        (((1.0, {"a": 1}), {"b": 2}), "the objective returned tuple"),
        ((1.0, {"a": 1}, {"b": 2}), "the objective returned tuple"),
        (("1.0", {"mass": 1.0}), "the objective returned str"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_words(returned: Any, words: str) -> None:
    with pytest.raises(WrongType, match=words):
        from_return(returned)


# -- numbers of other libraries ---------------------------------------------------------------------------


@through(
    ("returned", "value"),
    [(Scalar(2.5), 2.5), (Tensor(2.5), 2.5), (Decimal("2.5"), 2.5), (np.array(Decimal("2.5")), 2.5)],
)
def test_what_has_float_is_a_value(returned: Any, value: float) -> None:
    assert from_return(returned) == Outcome("value", value)


def test_what_has_float_may_fail() -> None:
    assert from_return(Scalar(math.nan)).reason == "returned NaN"
    assert from_return(Scalar(OverflowError("huge"))).reason == "returned a number too large for a float"
    with pytest.raises(WrongType, match=r"Scalar, which is no number \(free symbols\)"):
        from_return(Scalar(TypeError("free symbols")))


@through(("returned",), [("2.5",), (2.5 + 0j,), (np.complex128(2.5),), ([1, 2],), (b"2.5",), ({"f": 1.0},)])
def test_text_and_complex_numbers_are_still_refused(returned: Any) -> None:
    with pytest.raises(WrongType):
        from_return(returned)


# -- between processes and on disk ------------------------------------------------------------------------

MANY = {"mass": 3.1, "n": 3, "ok": True, "none": None, "word": 'σ\n"\x00', "inf": -math.inf, "zero": -0.0}


@through(
    ("outcome",),
    [
        (Outcome("value", 1.5, outputs=MANY),),
        (Outcome("infeasible", reason="a\nb", fault="F", detail="d\n", outputs=MANY),),
        (Outcome("lost", reason="node", outputs=MANY),),
        (Outcome("value", 1.5),),
        (infeasible("no", detail="x\ny"),),
        (lost("no"),),
    ],
)
def test_a_worker_s_answer_comes_back_with_its_outputs(outcome: Outcome) -> None:
    assert messages.decode(messages.encode(outcome), 1.0) == outcome
    assert str(messages.decode(messages.encode(outcome), 1.0).outputs) == str(outcome.outputs)  # -0.0 too


@through(
    ("more",), [(b"{",), (b"[]",), (b'{"a": []}',), (b'{"a": {}}',), (b'{"a": {"number": "x"}}',), (b"1",)]
)
def test_an_answer_that_no_worker_gives(more: bytes) -> None:
    for answer in (Outcome("value", 1.0), infeasible("no")):
        with pytest.raises((ValueError, TypeError)):
            messages.decode(messages.encode(answer) + b"\n" * (answer.status != "value") + more, 1.0)


def test_nan_is_valid_json() -> None:
    text = outputs.dump({"a": math.nan, "b": math.inf, "c": "nan"})
    assert text == '{"a":{"number":"nan"},"b":{"number":"inf"},"c":"nan"}'
    assert str(outputs.load({"a": {"number": "nan"}, "c": "nan"})) == "{'a': nan, 'c': 'nan'}"


# -- every way to evaluate --------------------------------------------------------------------------------


def weighed(x: Any) -> Any:
    if x[0] < 0.8:
        return float("nan"), {"mass": float(x[0]), "left": True}
    if x[1] < 0.8:
        raise fmnes.Infeasible("thin")
    return float(x @ x), {"mass": float(x[0]), "left": False}


KINDS = {("value", False), ("infeasible", True), ("infeasible", None)}


def run(**how: Any) -> list[tuple[Any, ...]]:
    result = fmnes.minimize(weighed, [1.0, 1.0], 0.3, rng=1, max_evaluations=30, keep_evaluations=True, **how)
    assert result.nfev == len(result.evaluations) == 30
    rows = result.evaluations
    return list(
        zip(rows["slot"], rows["status"], map(str, rows["mass"]), rows["left"], rows["x0"], strict=True)
    )


@pytest.mark.parametrize("way", ["run_dir", "workers", "threads", "processes"])
def test_outputs_come_through_every_evaluator(way: str, tmp_path: Any) -> None:
    one_by_one = run()
    assert {row[1:4:2] for row in one_by_one} == KINDS
    for _, status, mass, left, x0 in one_by_one:
        assert mass == ("nan" if status == "infeasible" and left is None else str(x0))
    if way == "run_dir":
        assert run(run_dir=tmp_path / "run") == one_by_one
    elif way == "workers":
        assert run(workers=2, run_dir=tmp_path / "run") == one_by_one
    elif way == "threads":
        with ThreadPoolExecutor(2) as executor:
            assert run(executor=executor) == one_by_one
    else:
        with ProcessPoolExecutor(1) as executor:
            assert run(executor=executor) == one_by_one


def test_outputs_change_nothing_else(tmp_path: Any) -> None:
    def alone(x: Any) -> Any:
        value = weighed(x)
        return value[0]

    with_them, without = (
        fmnes.minimize(fun, [1.0, 1.0], 0.3, rng=3, max_evaluations=60, run_dir=tmp_path / fun.__name__)
        for fun in (weighed, alone)
    )
    assert np.array_equal(with_them.x, without.x) and with_them.n_infeasible == without.n_infeasible


def test_what_is_told_may_have_outputs() -> None:
    opt, same = (fmnes.Optimizer([1.0, 1.0], 0.3, rng=1) for _ in range(2))
    for _ in range(4):
        told = [weighed(x) if x[1] > 0.8 else None for x in opt.ask()]
        opt.tell(told)
        same.ask()
        same.tell([value if value is None else value[0] for value in told])
    assert np.array_equal(opt.mean, same.mean) and opt.best.fun == same.best.fun
    [(number, _)] = opt.ask(1)
    opt.tell(number, (3.0, {"mass": 1}))
    with pytest.raises(fmnes.ArgumentError, match="the output 'mass' of type list"):
        opt.tell(opt.ask(1)[0][0], (3.0, {"mass": []}))


def test_outputs_that_cannot_be_kept_stop_the_run_at_once() -> None:
    with pytest.raises(fmnes.ObjectiveError, match="the output 'mass' of type list"):
        fmnes.minimize(lambda x: (1.0, {"mass": [1, 2]}), [1.0], 0.3)
