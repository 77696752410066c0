"""Rows of ``WIDTH`` numbers as vector instructions: so short a loop the compiler unrolls before it
could see the vector in it.

Each function is expanded where machine code calls it. Arithmetic is in float64, whatever the arrays
hold.

Letters: arrays (n, W) x solution, p direction, r residual, q = A p; (W,) alpha, beta; sums (LANES,
W) over rows, in turn.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 8
LANES = 4  # sums side by side, so that none waits for the one before
DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
FUSED = ("contract",)  # a product and a sum may be one instruction


class Rows:
    """An array (n, W) or (W,) in the code that is being written: its rows, as vectors of
    float64.
    """

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.builder, self.start = builder, context.make_array(kind)(context, builder, value).data
        self.kind = ir.VectorType(context.get_value_type(kind.dtype), WIDTH)

    def place(self, i: Any) -> Any:
        first = self.builder.mul(i, ir.Constant(i.type, WIDTH))
        return self.builder.bitcast(self.builder.gep(self.start, [first]), self.kind.as_pointer())

    def load(self, i: Any) -> Any:
        row = self.builder.load(self.place(i), align=4)
        return row if self.kind == DOUBLES else self.builder.fpext(row, DOUBLES)

    def store(self, i: Any, row: Any) -> None:
        row = row if self.kind == DOUBLES else self.builder.fptrunc(row, self.kind)
        self.builder.store(row, self.place(i), align=4)


def _written(
    signature: Any, write: Callable[[Any, list[Any], Callable[[int], Rows]], None]
) -> tuple[Any, Any]:
    """An intrinsic without a value; ``write`` gets the builder, the arguments, and the arguments as
    rows.
    """

    def code(context: Any, builder: Any, made: Any, arguments: list[Any]) -> Any:
        write(
            builder,
            arguments,
            lambda place: Rows(context, builder, made.args[place], arguments[place]),
        )
        return context.get_dummy_value()

    return signature, code


@intrinsic  # type: ignore[misc]
def follow(_: Any, x: Any, p: Any, r: Any, alpha: Any, beta: Any, i: Any) -> Any:
    """x[i] += alpha p[i], then p[i] = r[i] + beta p[i]."""

    def write(builder: Any, arguments: list[Any], rows: Callable[[int], Rows]) -> None:
        i, zero = arguments[5], ir.Constant(ir.IntType(64), 0)
        old = rows(1).load(i)
        rows(0).store(i, _fused(builder, rows(0).load(i), rows(3).load(zero), old))
        rows(1).store(i, _fused(builder, rows(2).load(i), rows(4).load(zero), old))

    return _written(types.void(x, p, r, alpha, beta, types.int64), write)


@intrinsic  # type: ignore[misc]
def multiply(
    _: Any, columns: Any, values: Any, first: Any, last: Any, p: Any, q: Any, i: Any, sums: Any
) -> Any:
    """q[i] = the row of A whose entries are ``first`` to ``last``, times p; p[i] q[i] is added to
    its sum.
    """

    def write(builder: Any, arguments: list[Any], rows: Callable[[int], Rows]) -> None:
        first, last, i = arguments[2], arguments[3], arguments[6]
        total = cgutils.alloca_once_value(builder, ir.Constant(DOUBLES, [0.0] * WIDTH))
        step = ir.Constant(first.type, 1)
        entries, numbers = rows(0).start, rows(1).start
        with cgutils.for_range_slice(builder, first, last, step, first.type) as (k, _):
            column = builder.zext(builder.load(builder.gep(entries, [k])), ir.IntType(64))
            value = builder.load(builder.gep(numbers, [k]))
            value = (
                value if value.type == ir.DoubleType() else builder.fpext(value, ir.DoubleType())
            )
            builder.store(
                _fused(builder, builder.load(total), _spread(builder, value), rows(4).load(column)),
                total,
            )
        row, lane = builder.load(total), builder.and_(i, ir.Constant(i.type, LANES - 1))
        rows(5).store(i, row)
        rows(7).store(lane, _fused(builder, rows(7).load(lane), row, rows(4).load(i)))

    return _written(
        types.void(columns, values, types.int64, types.int64, p, q, types.int64, sums), write
    )


@intrinsic  # type: ignore[misc]
def retreat(_: Any, r: Any, q: Any, alpha: Any, i: Any, sums: Any) -> Any:
    """r[i] -= alpha q[i]; r[i]^2 is added to its sum."""

    def write(builder: Any, arguments: list[Any], rows: Callable[[int], Rows]) -> None:
        i, zero = arguments[3], ir.Constant(ir.IntType(64), 0)
        step = builder.fmul(rows(2).load(zero), rows(1).load(i), flags=FUSED)
        new = builder.fsub(rows(0).load(i), step, flags=FUSED)
        lane = builder.and_(i, ir.Constant(i.type, LANES - 1))
        rows(0).store(i, new)
        rows(4).store(lane, _fused(builder, rows(4).load(lane), new, new))

    return _written(types.void(r, q, alpha, types.int64, sums), write)


def _fused(builder: Any, total: Any, a: Any, b: Any) -> Any:
    return builder.fadd(total, builder.fmul(a, b, flags=FUSED), flags=FUSED)


def _spread(builder: Any, value: Any) -> Any:
    """One number in every place of a vector."""
    nothing = ir.Constant(DOUBLES, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    )
