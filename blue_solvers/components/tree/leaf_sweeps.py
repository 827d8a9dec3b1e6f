"""Estimates of many leaves, a tile of them after another, in numpy and as a loop to be compiled.

All tables of a leaf are one column of a tile, or K, cell below cell. What other tables differ by from the sums of the
finest one goes through the sweeps between them (`lattice.sweeps`); what is found of every table is spread over the
finest one, and the tables that are wanted are summed from it. A column does not depend on those beside it.

Arguments of both:

data, columns : ndarray, (n K,), and int
    Tables of all geounits, one after the other; K numbers for every cell.
firsts, members, classes : ndarray of int, (N + 1,), (members,) and (N,)
    Which geounits each of N lanes adds up, and its row of what depends on classes.
measured : ndarray of int, (1 + tables, 3)
    Of the finest table, and of all others, where it starts in the layout, in cells, -1 where it was not measured, its
    cells, and its first row of the tile.
wanted : ndarray of int, (wanted, 3)
    The same of tables that are wanted.
precisions, scales : ndarray, (classes, tables)
    Of other measurements, and what multiplies what is known of every other table.
sums, up, down, shares, gathered, scattered, lists
    Steps of `lattice.sweeps`: sums of the finest table, the sweeps, the transpose of the sums, and sums that are
    wanted, and their transpose.
heads, outer, lines, matrices
    As in `lattice.lines`, matrices (classes, entries).
parts, part_of : ndarray (P, cells K) and ndarray of int (N,)
    What is added to the finest table, none where P is 0, and which of it to each lane.
out, rows_out : ndarray (m K,) and ndarray of int (N,)
    Tables of all geounits, and which row of each is a lane's.
rows, lanes, transpose : int, int and bool
    How many rows and lanes a tile has; and whether `data` has what is wanted, and `out` gets what is measured.
"""

from __future__ import annotations

import numpy as np

from blue_solvers.components.lattice.lines import mix_lines, mix_lines_in_numpy
from blue_solvers.components.lattice.sweeps import go_down, go_down_in_numpy, go_up, go_up_in_numpy
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.compiled import compiled


def sweep_leaves_in_numpy(
    data: Float, columns: int, firsts: Integers, members: Integers, classes: Integers, measured: Integers,
    wanted: Integers, precisions: Float, scales: Float, sums: Integers, up: Integers, down: Integers, shares: Integers,
    gathered: Integers, scattered: Integers, lists: Integers, heads: Integers, outer: Integers, lines: Integers,
    matrices: Float, parts: Float, part_of: Integers, out: Float, rows_out: Integers, rows: int, lanes: int,
    transpose: bool,
) -> None:  # fmt: skip
    """Write the tables of all lanes; see the module."""
    ones = np.ones(max(map(len, (sums, up, shares, scattered))))
    whole, others = _part(measured[0]), measured[1:]
    for own in np.unique(classes):
        chosen = np.flatnonzero(classes == own)
        cells = np.zeros((rows, chosen.size * columns))
        added = parts[part_of[chosen]].reshape(chosen.size, -1, columns).swapaxes(0, 1) if len(parts) else np.zeros(1)
        if transpose:
            for table in wanted:
                cells[_part(table)] += _table_in_numpy(data, columns, firsts, members, table, chosen)
            go_up_in_numpy(cells, scattered, lists, ones[: len(scattered)], cells)
            cells[whole] += added.reshape(-1, added[0].size)
            go_up_in_numpy(cells, sums, lists, ones[: len(sums)], cells)
        else:
            cells[whole] = _table_in_numpy(data, columns, firsts, members, measured[0], chosen)
            go_down_in_numpy(cells, sums, lists)
            for table, precision in zip(others, precisions[own], strict=True):
                read = _table_in_numpy(data, columns, firsts, members, table, chosen)
                cells[_part(table)] = precision * (read - cells[_part(table)])
            go_up_in_numpy(cells, up, lists, ones[: len(up)], cells)
        for table, scale in zip(others, scales[own], strict=True):
            cells[_part(table)] *= scale
        mix_lines_in_numpy(cells, heads, outer, lines, matrices[own], transpose)
        if transpose:
            go_down_in_numpy(cells, down, lists)
            for table, precision in zip(others, precisions[own], strict=True):
                cells[_part(table)] *= precision
                _write_in_numpy(out, columns, cells, table, rows_out[chosen])
                cells[_part(table)] *= -1.0
            go_up_in_numpy(cells, shares, lists, ones[: len(shares)], cells)
            _write_in_numpy(out, columns, cells, measured[0], rows_out[chosen])
        else:
            go_down_in_numpy(cells, shares, lists)
            cells[whole] += added.reshape(-1, added[0].size)
            go_down_in_numpy(cells, gathered, lists)
            for table in wanted:
                _write_in_numpy(out, columns, cells, table, rows_out[chosen])


def _part(table: Integers) -> slice:
    return slice(int(table[2]), int(table[2] + table[1]))


def _table_in_numpy(
    data: Float, columns: int, firsts: Integers, members: Integers, table: Integers, chosen: Index
) -> Float:
    """A table of some lanes, (cells, lanes K); 0 where it was not measured."""
    start, size = table[:2] * columns
    found = np.zeros((table[1], chosen.size, columns))
    for lane, number in enumerate(chosen if start >= 0 else ()):
        for member in members[firsts[number] : firsts[number + 1]]:
            found[:, lane] += data[start + member * size :][:size].reshape(-1, columns)
    return found.reshape(table[1], -1)


def _write_in_numpy(out: Float, columns: int, cells: Float, table: Integers, rows: Integers) -> None:
    start, size = table[:2] * columns
    for lane, row in enumerate(rows if start >= 0 else ()):
        out[start + row * size :][:size] = cells[_part(table), lane * columns : (lane + 1) * columns].ravel()


@compiled(reference=sweep_leaves_in_numpy)
def sweep_leaves(
    data: Float, columns: int, firsts: Integers, members: Integers, classes: Integers, measured: Integers,
    wanted: Integers, precisions: Float, scales: Float, sums: Integers, up: Integers, down: Integers, shares: Integers,
    gathered: Integers, scattered: Integers, lists: Integers, heads: Integers, outer: Integers, lines: Integers,
    matrices: Float, parts: Float, part_of: Integers, out: Float, rows_out: Integers, rows: int, lanes: int,
    transpose: bool,
) -> None:  # fmt: skip
    """See `sweep_leaves_in_numpy`."""
    width, is_single, all_parts = lanes * columns, members.size == rows_out.size, parts.ravel()
    read, left = (wanted, measured) if transpose else (measured, wanted)
    cells, places = np.zeros((rows, width)), np.empty(lanes, np.int64)
    totals = np.empty(0 if is_single else read[:, 1].max() * width)
    ones = np.ones(max(sums.shape[0], up.shape[0], shares.shape[0], scattered.shape[0]))
    source, start = data if is_single else totals, 0
    while start < rows_out.size:
        stop, own = start + 1, classes[start]
        while stop < rows_out.size and stop < start + lanes and classes[stop] == own:
            stop += 1
        _clear(cells, measured[0])
        for i in range(read.shape[0] if transpose else 0):
            _clear(cells, read[i])
        for i in range(read.shape[0]):
            differs = not transpose and i > 0
            if read[i, 0] >= 0:
                _find(places, data, columns, read[i], members, firsts, start, stop, totals, is_single)
                weight, sign = (precisions[own, i - 1], 1.0) if differs else (1.0, -1.0)
                _enter(cells, read[i], source, places, stop - start, columns, weight, sign)
            else:
                _clear(cells, read[i])
            if not transpose and i == 0:
                go_down(cells, sums, lists)
        if transpose:
            go_up(cells, scattered, lists, ones[: scattered.shape[0]], cells)
            _add_parts(cells, measured[0], all_parts, part_of, places, start, stop, columns)
            go_up(cells, sums, lists, ones[: sums.shape[0]], cells)
        else:
            go_up(cells, up, lists, ones[: up.shape[0]], cells)
        for i in range(1, measured.shape[0]):
            _scale(cells, measured[i], scales[own, i - 1])
        mix_lines(cells, heads, outer, lines, matrices[own], transpose)
        if transpose:
            go_down(cells, down, lists)
        else:
            go_down(cells, shares, lists)
            _add_parts(cells, measured[0], all_parts, part_of, places, start, stop, columns)
            go_down(cells, gathered, lists)
        for number in range(left.shape[0]):
            i = (number + 1) % left.shape[0]  # what goes back to the finest table, before that table itself
            if transpose and i > 0:
                _scale(cells, left[i], precisions[own, i - 1])
            elif transpose:
                go_up(cells, shares, lists, ones[: shares.shape[0]], cells)
            if left[i, 0] >= 0:
                _leave(cells, left[i], out, rows_out, start, stop, columns)
            if transpose:
                _scale(cells, left[i], -1.0)
        start = stop


def _clear(cells: Float, table: Integers) -> None:
    cells[table[2] : table[2] + table[1]] = 0.0


def _find(
    places: Integers, data: Float, columns: int, table: Integers, members: Integers, firsts: Integers, start: int,
    stop: int, totals: Float, is_single: bool,
) -> None:  # fmt: skip
    """Where a table of some lanes begins: in data, or in totals, where several are added up."""
    first, size = table[0] * columns, table[1] * columns
    for lane in range(start, stop):
        if is_single:
            places[lane - start] = first + members[lane] * size
        else:
            places[lane - start] = (lane - start) * size
            _add_up(data, first, members, firsts[lane], firsts[lane + 1], totals, places[lane - start], size)


def _add_up(
    data: Float, start: int, members: Integers, first: int, last: int, total: Float, at: int, size: int
) -> None:
    """Sum a table over geounits, two of them at a time."""
    sums, place = total[at : at + size], start + members[first] * size
    own = data[place : place + size]
    for c in range(size):
        sums[c] = own[c]
    for i in range(first + 1, last - 1, 2):
        place, other = start + members[i] * size, start + members[i + 1] * size
        own, beside = data[place : place + size], data[other : other + size]
        for c in range(size):
            sums[c] += own[c] + beside[c]
    if (last - first) % 2 == 0:
        place = start + members[last - 1] * size
        own = data[place : place + size]
        for c in range(size):
            sums[c] += own[c]


def _add_parts(
    cells: Float, table: Integers, parts: Float, part_of: Integers, places: Integers, start: int, stop: int,
    columns: int,
) -> None:  # fmt: skip
    if parts.size:
        for lane in range(start, stop):
            places[lane - start] = part_of[lane] * table[1] * columns
        _enter(cells, table, parts, places, stop - start, columns, 1.0, -1.0)


def _enter(
    cells: Float, table: Integers, data: Float, places: Integers, lanes: int, columns: int, weight: float, sign: float
) -> None:
    """Of each of some lanes in the tile what is read, less what there is times a sign, times a weight.

    Eight lanes of one column each side by side, so that a line of the cache is written at once.
    """
    tile, step, one, lane = cells.ravel(), np.uint64(cells.shape[1]), np.uint64(1), 0
    at = table[2] * cells.shape[1]
    while columns == 1 and lane + 8 <= lanes:
        p0, p1 = np.uint64(places[lane]), np.uint64(places[lane + 1])
        p2, p3 = np.uint64(places[lane + 2]), np.uint64(places[lane + 3])
        p4, p5 = np.uint64(places[lane + 4]), np.uint64(places[lane + 5])
        p6, p7 = np.uint64(places[lane + 6]), np.uint64(places[lane + 7])
        t0 = np.uint64(at + lane)
        for c in range(np.uint64(0), np.uint64(table[1]), one):
            t1, t2, t3, t4 = t0 + one, t0 + np.uint64(2), t0 + np.uint64(3), t0 + np.uint64(4)
            t5, t6, t7 = t0 + np.uint64(5), t0 + np.uint64(6), t0 + np.uint64(7)
            tile[t0] = weight * (data[p0 + c] - sign * tile[t0])
            tile[t1] = weight * (data[p1 + c] - sign * tile[t1])
            tile[t2] = weight * (data[p2 + c] - sign * tile[t2])
            tile[t3] = weight * (data[p3 + c] - sign * tile[t3])
            tile[t4] = weight * (data[p4 + c] - sign * tile[t4])
            tile[t5] = weight * (data[p5 + c] - sign * tile[t5])
            tile[t6] = weight * (data[p6 + c] - sign * tile[t6])
            tile[t7] = weight * (data[p7 + c] - sign * tile[t7])
            t0 += step
        lane += 8
    run = table[1] * columns if cells.shape[1] == columns else columns
    for own in range(lane, lanes):
        place, to = np.uint64(places[own]), np.uint64(at + own * columns)
        for _ in range(table[1] * columns // run):
            for c in range(np.uint64(0), np.uint64(run), one):
                tile[to + c] = weight * (data[place + c] - sign * tile[to + c])
            place, to = place + np.uint64(run), to + step


def _leave(cells: Float, table: Integers, out: Float, rows_out: Integers, start: int, stop: int, columns: int) -> None:
    """Write a table of each of some lanes from the tile, one row of the tile after another."""
    tile, one, size = cells.ravel(), np.uint64(1), table[1] * columns
    run = size if cells.shape[1] == columns else columns
    for cell in range(size // run):
        own, first = np.uint64((table[2] + cell) * cells.shape[1]), table[0] * columns + cell * run
        for lane in range(start, stop):
            place = np.uint64(first + rows_out[lane] * size)
            if run == 1:
                out[place] = tile[own]
            for c in range(np.uint64(0), np.uint64(run if run > 1 else 0), one):
                out[place + c] = tile[own + c]
            own += np.uint64(run)


def _scale(cells: Float, table: Integers, factor: float) -> None:
    tile, first = cells.ravel(), table[2] * cells.shape[1]
    for c in range(first, first + table[1] * cells.shape[1]):
        tile[c] *= factor
