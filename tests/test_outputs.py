"""Further outputs beside the value: what is taken for one, and that it comes through every way there is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import RunError
from fmnes import outcome as outputs
from fmnes.evaluation.workers import messages
from fmnes.outcome import Outcome, WrongType, from_return, infeasible, lost
from fmnes.storage import log_reader
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
        ((1.0, {"log": "x" * 50_000}), "outputs of 500.. bytes; wanted at most 50000"),
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
    "more",
    [
        *(b"{", b"[]", b'{"a": []}', b'{"a": {}}', b'{"a": {"number": "x"}}', b"1", b"[" * 100_000, b"\xff"),
        *(b'{"a": 1e999}', b'{"a": 1, "a": 1}', b'{"\\ud800": 1}', b'{"a": %d}' % 10**400),
    ],
)
def test_an_answer_that_no_worker_gives(more: bytes) -> None:
    for answer in (Outcome("value", 1.0), infeasible("no")):
        with pytest.raises(ValueError):
            messages.decode(messages.encode(answer) + b"\n" * (answer.status != "value") + more, 1.0)


@through(
    "plain",
    [
        {"a": 10**400},
        {"a": 2**63},
        {"a": math.inf},
        {"a": [1.0]},
        {"a": {"number": "1.0"}},
        {"a": {"number": "nan", "b": 1}},
        {"a": {"number": ["nan"]}},
        {"\ud800": 1},
        {"a": "\udfff"},
        {" ": 1},
        {str(i): 1 for i in range(1001)},
        {"a": "b" * 50_000},
        [],
        None,
    ],
)
def test_outputs_from_elsewhere_are_checked_as_those_of_a_function(plain: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError):
        outputs.load(plain)
    data = json.dumps({"outputs": plain})
    key = (0, 0, 0, 0, 0)
    with pytest.raises(RunError, match="damaged outputs"):
        log_reader.decode_more((*key, data, log_reader._more_checksum(key, data)))


@through(
    "text", ['{"a": 1, "a": 2}', '{"a": NaN}', '"\\ud800"', b"\xff", "[" * 100_000, "1" * 5000, "", "{}x"]
)
def test_json_that_is_not_ours_is_a_value_error(text: Any) -> None:
    with pytest.raises(ValueError):
        outputs.read_json(text)


def test_json_as_we_write_it() -> None:
    for plain in ({"a": ["σ", "\U0001f600", None, True, 1.5, 2**62]}, [], "x", 3):
        for text in (json.dumps(plain), json.dumps(plain, ensure_ascii=False)):
            assert outputs.read_json(text) == outputs.read_json(text.encode()) == plain


class Liar(ThreadPoolExecutor):
    """An executor that brings back something else than what was evaluated."""

    def __init__(self, back: Any) -> None:
        super().__init__(1)
        self.back = back

    def submit(self, fun: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        return super().submit(lambda: self.back)


@through(
    "back",
    [
        None,
        3,
        ("value",),
        ("value", 1.0, "", "", "", 0.1, {"a": 10**400}),
        ("value", 1.0, "", "", "", 0.1, [1]),
        ("value", 10**400, "", "", "", 0.1, None),
        ("value", math.nan, "", "", "", 0.1, None),
        ("value", 1.0, "", "", "", 10**400, None),
        ("excellent", 1.0, "", "", "", 0.1, None),
        (["value"], 1.0, "", "", "", 0.1, None),
        ("infeasible", math.inf, None, "", "", 0.1, None),
        ("outcome", b"", 0.1),
        ("outcome", None, 0.1),
        ("outcome", messages.encode(Outcome("value", 1.0)), None),
        ("outcome", messages.encode(Outcome("value", 1.0)) + b"[" * 100_000, 0.1),
    ],
)
def test_what_an_executor_brings_back_is_an_answer_or_lost(back: Any) -> None:
    for timeout in (None, 60.0):
        with Liar(back) as executor:
            result = fmnes.minimize(
                weighed, [1.0, 1.0], 0.3, rng=1, executor=executor, timeout=timeout, retries=0
            )
        assert (result.stop_reason.name, result.nfev) == ("LOST", 0)
        assert "the executor failed" in result.message


def test_text_that_cannot_be_written_comes_back_from_an_executor_as_escapes(tmp_path: Any) -> None:
    back = ("value", 1.0, "", "", "", 0.1, {"\ud800": "\udfff", "n": 2**63})
    with Liar(back) as executor:
        fmnes.minimize(weighed, [1.0], 0.3, executor=executor, max_evaluations=3, run_dir=tmp_path / "run")
    row = fmnes.read_run(tmp_path / "run").evaluations
    assert (row["\\ud800"][0], row["n"][0]) == ("\\udfff", 2.0**63)


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
    settings = {"rng": 1, "max_evaluations": 30, "keep_evaluations": True, "surrogate": False, **how}
    result = fmnes.minimize(weighed, [1.0, 1.0], 0.3, **settings)
    assert result.nfev == len(result.evaluations) == 30
    found = result.evaluations
    return list(
        zip(found["slot"], found["status"], map(str, found["mass"]), found["left"], found["x0"], strict=True)
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
