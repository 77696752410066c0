"""The algebra of quantities: intervals contain what they must, bounds keep their side, verdicts
never improve.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.core.quantity import DIRECTIONS, KINDS, VERDICTS, Quantity, bits_per_dimension
from partita.errors import InputError

ENDS = st.floats(-1e6, 1e6, allow_nan=False)
FACTORS = st.floats(-1e3, 1e3, allow_nan=False)


@st.composite
def quantities(draw: st.DrawFn, unit: str = "nats") -> Quantity:
    low, value, high = sorted(draw(st.tuples(ENDS, ENDS, ENDS)))
    kind = draw(st.sampled_from(KINDS))
    if kind == "exact":
        low = high = value
    return Quantity(
        value,
        low,
        high,
        level=1.0 if kind == "exact" else draw(st.floats(0.5, 1.0)),
        kind=kind,  # type: ignore[arg-type]
        unit=unit,
        n=draw(st.integers(0, 100)),
        se_data=draw(st.floats(0, 10)),
        verdict=draw(st.sampled_from(VERDICTS)),  # type: ignore[arg-type]
        direction="none" if kind == "exact" else draw(st.sampled_from(DIRECTIONS)),  # type: ignore[arg-type]
    )


def bound(kind: str, value: float = 1.0, half: float = 0.5, level: float = 0.95) -> Quantity:
    """A lower bound that errs low, an upper one that errs high, or an exact number."""
    if kind == "exact":
        return Quantity(value)
    direction = {"lower": "low", "upper": "high"}.get(kind, "none")
    return Quantity(value, value - half, value + half, level, kind, direction=direction)  # type: ignore[arg-type]


def test_a_bare_number_is_exact_with_an_interval_of_no_width() -> None:
    q = Quantity(3.0)
    assert (q.low, q.high, q.level, q.kind, q.width, q.direction) == (
        3.0,
        3.0,
        1.0,
        "exact",
        0.0,
        "none",
    )
    assert float(q) == 3.0


@given(quantities())
def test_negating_twice_changes_nothing(q: Quantity) -> None:
    once = -q
    assert -once == q


@given(quantities())
def test_negation_mirrors_the_interval_and_the_side(q: Quantity) -> None:
    mirror = {"lower": "upper", "upper": "lower", "low": "high", "high": "low"}
    assert (-q).value == -q.value
    assert ((-q).low, (-q).high) == (-q.high, -q.low)
    assert (-q).kind == mirror.get(q.kind, q.kind)
    assert (-q).direction == mirror.get(q.direction, q.direction)
    assert ((-q).verdict, (-q).level, (-q).unit, (-q).se_data) == (
        q.verdict,
        q.level,
        q.unit,
        q.se_data,
    )


@given(quantities(), quantities())
def test_a_sum_holds_every_sum_of_what_its_terms_hold(p: Quantity, q: Quantity) -> None:
    total = p + q
    assert (total.low, total.value, total.high) == (
        p.low + q.low,
        p.value + q.value,
        p.high + q.high,
    )
    assert total.low <= total.value <= total.high
    assert total.verdict == VERDICTS[max(VERDICTS.index(p.verdict), VERDICTS.index(q.verdict))]
    assert total.se_data == pytest.approx(math.sqrt(p.se_data**2 + q.se_data**2))


@given(quantities(), quantities())
def test_sums_and_differences_do_not_care_about_order(p: Quantity, q: Quantity) -> None:
    assert p + q == q + p
    assert -(p - q) == q - p


@given(quantities(), quantities())
def test_a_difference_holds_every_difference(p: Quantity, q: Quantity) -> None:
    difference = p - q
    assert difference.low == p.low - q.high
    assert difference.high == p.high - q.low


@given(quantities(), FACTORS)
def test_scaling_holds_every_multiple(q: Quantity, a: float) -> None:
    scaled = a * q
    assert scaled.value == a * q.value
    assert {scaled.low, scaled.high} == {a * q.low, a * q.high}
    assert scaled.low <= scaled.high
    assert scaled.se_data == abs(a) * q.se_data
    assert scaled == q * a


@given(quantities(), ENDS)
def test_a_plain_number_is_an_exact_term(q: Quantity, shift: float) -> None:
    moved = q + shift
    assert (moved.value, moved.low, moved.high) == (q.value + shift, q.low + shift, q.high + shift)
    assert (moved.kind, moved.direction, moved.level) == (q.kind, q.direction, q.level)
    assert shift + q == moved
    assert shift - q == -q + shift
    assert q - shift == q + (-shift)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("exact", "exact", "exact"),
        ("exact", "lower", "lower"),
        ("lower", "exact", "lower"),
        ("exact", "upper", "upper"),
        ("lower", "lower", "lower"),
        ("upper", "upper", "upper"),
        ("lower", "upper", "estimate"),
        ("upper", "lower", "estimate"),
        ("lower", "estimate", "estimate"),
        ("estimate", "upper", "estimate"),
        ("exact", "estimate", "estimate"),
        ("exact", "none", "none"),
        ("lower", "none", "none"),
    ],
)
def test_kind_of_a_sum(first: str, second: str, kind: str) -> None:
    assert (bound(first) + bound(second)).kind == kind


@pytest.mark.parametrize(("kind", "mirrored"), [("lower", "upper"), ("upper", "lower")])
def test_a_bound_minus_a_bound_of_the_same_side_has_no_side(kind: str, mirrored: str) -> None:
    difference = bound(kind, 5.0) - bound(kind, 2.0)
    assert (difference.kind, difference.direction) == ("estimate", "none")
    opposite = bound(kind, 5.0) - bound(mirrored, 2.0)
    assert (opposite.kind, opposite.direction) == (kind, bound(kind).direction)


@pytest.mark.parametrize(
    ("kind", "direction"), [("lower", "low"), ("upper", "high"), ("estimate", "none")]
)
def test_an_exact_term_keeps_the_direction(kind: str, direction: str) -> None:
    assert (Quantity(7.0) + bound(kind)).direction == direction
    assert (bound(kind) + Quantity(7.0)).direction == direction


def test_a_log_partition_that_errs_low_flatters_the_likelihood() -> None:
    log_z = Quantity(10.0, 9.0, 12.0, 0.95, "estimate", direction="low")
    likelihood = 3.0 - log_z
    assert (likelihood.value, likelihood.low, likelihood.high, likelihood.direction) == (
        -7.0,
        -9.0,
        -6.0,
        "high",
    )


def test_levels_add_their_failures() -> None:
    assert (bound("lower", level=0.95) + bound("lower", level=0.9)).level == pytest.approx(
        0.85, abs=1e-12
    )
    assert (bound("lower", level=0.95) - bound("upper", level=0.99)).level == pytest.approx(
        0.94, abs=1e-12
    )
    assert (Quantity(1.0) + bound("lower", level=0.95)).level == pytest.approx(0.95, abs=1e-12)
    # Bonferroni promises nothing here
    assert (bound("lower", level=0.3) + bound("lower", level=0.4)).level == 0.0
    assert (bound("lower", level=0.95) * -3).level == 0.95


def test_a_negative_factor_swaps_the_side_and_a_positive_one_does_not() -> None:
    q = Quantity(2.0, 1.0, 4.0, 0.95, "lower", direction="low", se_data=0.5)
    assert q * -2 == Quantity(-4.0, -8.0, -2.0, 0.95, "upper", direction="high", se_data=1.0)
    assert q * 2 == Quantity(4.0, 2.0, 8.0, 0.95, "lower", direction="low", se_data=1.0)
    assert q / -2 == Quantity(-1.0, -2.0, -0.5, 0.95, "upper", direction="high", se_data=0.25)


def test_methods_are_named_once_each() -> None:
    a, b = replace(bound("lower"), method="AIS"), replace(bound("lower"), method="IWAE")
    assert (a + b).method == "AIS and IWAE"
    assert (a + a).method == "AIS"
    assert (a + Quantity(1.0)).method == "AIS"


def test_details_stay_and_do_not_count_in_comparisons() -> None:
    q = Quantity(1.0, details={"ess": 12.0})
    assert (-q).details == {"ess": 12.0}
    assert (q + Quantity(2.0, details={"khat": 0.1})).details == {"ess": 12.0, "khat": 0.1}
    assert q == Quantity(1.0)


def test_units_must_agree_in_a_sum() -> None:
    with pytest.raises(
        InputError, match=r"Quantity: unit must be 'nats' in both terms of a sum; got 'bits'\."
    ):
        Quantity(1.0) + Quantity(1.0, unit="bits")
    with pytest.raises(InputError, match=r"unit must be 'bits' in both terms"):
        Quantity(1.0, unit="bits") - Quantity(1.0)


def test_bits_per_dimension_divide_and_turn_round() -> None:
    nats = Quantity(
        -10 * math.log(2),
        -12 * math.log(2),
        -8 * math.log(2),
        0.95,
        "lower",
        se_data=math.log(2),
        direction="low",
    )
    bits = bits_per_dimension(nats, 2)
    assert (bits.value, bits.low, bits.high, bits.se_data) == pytest.approx((5.0, 4.0, 6.0, 0.5))
    assert (bits.kind, bits.direction, bits.unit, bits.level) == (
        "upper",
        "high",
        "bits per dimension",
        0.95,
    )


@pytest.mark.parametrize(
    ("verdict", "trusted"), [("tight", True), ("loose", True), ("do not publish", False)]
)
def test_only_the_worst_verdict_is_not_trusted(verdict: str, trusted: bool) -> None:
    assert Quantity(1.0, verdict=verdict).trusted is trusted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"low": 2.0, "high": 3.0, "kind": "estimate"},
            r"low and high must enclose the value; got 2.0 <= 1.0 <= 3.0",
        ),
        (
            {"low": 0.0, "high": 0.5, "kind": "estimate"},
            r"low and high must enclose the value; got 0.0 <= 1.0 <= 0.5",
        ),
        (
            {"low": 0.0, "high": 2.0},
            r"low and high must equal the value when the kind is exact; got \[0.0, 2.0\]",
        ),
        (
            {"kind": "maybe"},
            r"kind must be one of exact, lower, upper, estimate, none; got 'maybe'",
        ),
        ({"verdict": "fine"}, r"verdict must be one of tight, loose, do not publish; got 'fine'"),
        ({"direction": "up"}, r"direction must be one of low, high, none; got 'up'"),
        ({"level": 95.0}, r"level must lie in \[0, 1\]; got 95.0"),
    ],
)
def test_nonsense_is_refused(settings: dict, words: str) -> None:
    with pytest.raises(InputError, match=f"Quantity: {words}"):
        Quantity(1.0, **settings)


@pytest.mark.parametrize(
    ("q", "text"),
    [
        (Quantity(-1.23456), "-1.235 nats, exact, tight"),
        (
            Quantity(-1.0, method="enumeration", verdict="do not publish"),
            "-1.000 nats, exact by enumeration, do not publish",
        ),
        (
            Quantity(1.0, 1 - 1e-7, 1 + 2e-7, 0.99, "estimate", method="quadrature"),
            "1.000 nats ± 2e-07, estimate by quadrature, tight",
        ),
        (
            Quantity(
                1.0, 0.5, 1.5, 0.95, "lower", method="IWAE", n=10, se_data=0.25, verdict="loose"
            ),
            "1.000 nats [0.500, 1.500] (± 0.250 over 10 rows), lower bound by IWAE, loose",
        ),
        (
            Quantity(0.1, kind="upper", unit="bits", verdict="do not publish"),
            "0.100 bits, upper bound, do not publish",
        ),
    ],
)
def test_it_says_what_it_is(q: Quantity, text: str) -> None:
    assert str(q) == text
