"""Linear maps of many geounits at once, a tile of them after another, in numpy and as a loop to be compiled.

A lane is a geounit, or several that are added up, and a column. A tile holds a row of numbers for every cell of some
lanes: tables are read into it, sums of rows (`row_program`) done on it, and tables written from it, so that nothing but
these leaves the cache. What a lane gets does not depend on which lanes are beside it. A finest table of many cells
stays a line of cells, of which margins enter the tile, and to which margins of the tile are added when it is written.

Arguments of both:

data, columns : ndarray, (n K,), and int
    Tables of all geounits, one after the other; K numbers for every cell.
firsts, members, classes : ndarray of int, (N + 1,), (members,) and (N,)
    Which geounits each of N lanes adds up; and of all of them, the row of `factors`.
inputs : ndarray of int, (tables, 3)
    Of every table read into the tile: where it starts in `data`, in cells, its cells, and its first row of the tile.
line, line_out : ndarray of int, (2,), and int
    Of the finest table: where it starts in `data`, its cells, 0 where it is among the inputs; where it starts in `out`.
margins : ndarray of int, (margins, 5)
    Sums along an axis of the line, which margins follow: where it is read, cells before the axis, its levels, cells
    after it, and the first row of the tile that it goes to, or -1.
parts, part_of, first_part : ndarray (P, cells K), ndarray of int (N,) and int
    What is added to the finest table, none where P is 0; which of it to each lane; and where it goes in the tile, or -1
    where it is added to the line.
targets, lengths, terms, sources, factors
    Runs of sums of rows.
outputs, written : ndarray of int, (tables, 3) and (rows,)
    Of every table written from the tile: where it starts in `out`, its cells, and where its rows start in `written`.
boxes, runs : ndarray of int, (boxes, 3) and (boxes, runs)
    Margins of the tile that are added to the line: how many cells, where its rows start in `written`, and 1 if it has a
    cell for each of a run, 0 if one for all of it; and where in every box each run of the line's cells starts.
out, rows_out, rows : ndarray (m K,), ndarray of int (N,) and int
    Tables of all geounits, which row of each is a lane's, and how many rows the tile has.
"""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled, prefetch

LANES = 64  # of a tile
FEW_LANES = 32  # of one of many rows
MOST_ROWS = 400
LINE = 8  # that a processor reads together
FOLDED = 64  # numbers of which the sum is worth adding quarters first, which a processor does side by side


def map_lanes_in_numpy(
    data: Float, columns: int, firsts: Integers, members: Integers, classes: Integers, inputs: Integers,
    line: Integers, margins: Integers, parts: Float, part_of: Integers, first_part: int, targets: Integers,
    lengths: Integers, terms: Integers, sources: Integers, factors: Float, outputs: Integers, written: Integers,
    boxes: Integers, runs: Integers, line_out: int, out: Float, rows_out: Integers, rows: int,
) -> None:  # fmt: skip
    """Write the tables of all lanes; see the module."""
    tile = np.zeros((rows, rows_out.size, columns))

    def added(start: int, cells: int) -> Float:
        own = np.zeros((cells, rows_out.size, columns))
        for lane in range(rows_out.size):
            for member in members[firsts[lane] : firsts[lane + 1]]:
                first = (start + member * cells) * columns
                own[:, lane] += data[first : first + cells * columns].reshape(cells, columns)
        return own

    for start, cells, row in inputs.tolist():
        tile[row : row + cells] = added(start, cells)
    whole = added(*line.tolist())
    read = [whole]
    for start, before, levels, after, row in margins.tolist():
        source = np.concatenate(read)[start : start + before * levels * after]
        sums = source.reshape(before, levels, after, *tile.shape[1:]).sum(axis=1).reshape(-1, *tile.shape[1:])
        read.append(sums)
        if row >= 0:
            tile[row : row + len(sums)] = sums
    if len(parts):
        own = parts[part_of].reshape(rows_out.size, -1, columns).swapaxes(0, 1)
        if first_part >= 0:
            tile[first_part : first_part + len(own)] = own
        else:
            whole = whole + own
    for i, (target, length) in enumerate(zip(targets, lengths, strict=True)):
        of_sum = slice(terms[i], terms[i + 1])
        summed = tile[sources[of_sum, None] + np.arange(length)]
        tile[target : target + length] = np.einsum("trlk,lt->rlk", summed, factors[classes, of_sum])
    tables = [(start, cells, tile[written[first : first + cells]]) for start, cells, first in outputs.tolist()]
    if len(whole):
        for (cells, first, each), starts in zip(boxes.tolist(), runs, strict=True):
            box, length = tile[written[first : first + cells]], len(whole) // starts.size
            whole = whole + np.concatenate([box[s : s + length] if each else box[[s] * length] for s in starts])
        tables.append((line_out, len(whole), whole))
    for start, cells, table in tables:
        for lane, row in enumerate(rows_out):
            first = (start + row * cells) * columns
            out[first : first + cells * columns] = table[:, lane].ravel()


@compiled(reference=map_lanes_in_numpy)
def map_lanes(
    data: Float, columns: int, firsts: Integers, members: Integers, classes: Integers, inputs: Integers,
    line: Integers, margins: Integers, parts: Float, part_of: Integers, first_part: int, targets: Integers,
    lengths: Integers, terms: Integers, sources: Integers, factors: Float, outputs: Integers, written: Integers,
    boxes: Integers, runs: Integers, line_out: int, out: Float, rows_out: Integers, rows: int,
) -> None:  # fmt: skip
    """See `map_lanes_in_numpy`."""
    most = max(1, (LANES if rows <= MOST_ROWS else FEW_LANES) // columns)
    stride, length, is_single = most * columns, line[1] * columns, members.size == rows_out.size
    cells = _aligned(rows * stride)
    in_margins, in_boxes = (margins[:, 1] * margins[:, 3]).sum() * columns, boxes[:, 0].sum() * columns
    in_tables = inputs[:, 1].sum() * columns
    sums, spread = np.empty(most * in_margins), np.empty(most * in_boxes)
    lines, totals = np.empty(0 if is_single else most * length), np.empty(0 if is_single else most * in_tables)
    places, own, starts = np.empty(most, np.int64), np.arange(most), np.empty(most, np.int64)
    all_parts, all_lines = parts.ravel(), data if is_single else lines
    start = 0
    while start < rows_out.size:
        stop = start + 1
        while stop < rows_out.size and stop < start + most and classes[stop] == classes[start]:
            stop += 1
        for i in range(inputs.shape[0]):
            first, size, at = inputs[i, 0] * columns, inputs[i, 1] * columns, inputs[i, 2] * stride
            _find(places, data, first, size, members, firsts, start, stop, totals, is_single)
            _enter(cells, at, stride, data if is_single else totals, places, size, stop - start, columns)
        if first_part >= 0 and parts.shape[0]:
            _place(places, 0, parts.shape[1], part_of, start, stop)
            _enter(cells, first_part * stride, stride, all_parts, places, parts.shape[1], stop - start, columns)
        if length:
            _find(starts, data, line[0] * columns, length, members, firsts, start, stop, lines, is_single)
            _sum_lines(all_lines, starts, length, sums, in_margins, margins, columns, stop - start)
            room = 0
            for i in range(margins.shape[0]):
                size = margins[i, 1] * margins[i, 3] * columns
                if margins[i, 4] >= 0:
                    _place(places, room, in_margins, own, 0, stop - start)
                    _enter(cells, margins[i, 4] * stride, stride, sums, places, size, stop - start, columns)
                room += size
        soon = min(stop - start, rows_out.size - stop) if is_single and length else 0
        _add_rows(
            cells, stride, (stop - start) * columns, targets, lengths, terms, sources, factors[classes[start]], soon,
            length, data, line[0] * columns, members[stop:], out, line_out * columns, rows_out[start:],
        )  # fmt: skip
        for i in range(outputs.shape[0]):
            first, size = outputs[i, 0] * columns, outputs[i, 1] * columns
            _place(places, first, size, rows_out, start, stop)
            _leave(cells, stride, written, outputs[i, 2], out, places, size, stop - start, columns)
        room = 0
        for i in range(boxes.shape[0]):
            size = boxes[i, 0] * columns
            _place(places, room, in_boxes, own, 0, stop - start)
            _leave(cells, stride, written, boxes[i, 1], spread, places, size, stop - start, columns)
            room += size
        for lane in range(start, stop if length else start):
            part = part_of[lane] * length if parts.shape[0] else -1
            to, at, box = line_out * columns + rows_out[lane] * length, starts[lane - start], (lane - start) * in_boxes
            _write_line(all_lines, at, length, all_parts, part, boxes, runs, spread, box, columns, out, to)
        start = stop


def _aligned(size: int) -> Float:
    """Zeros that begin where a line of the cache does."""
    cells = np.zeros(size + 8)
    first = (-(cells.ctypes.data // 8)) % 8
    return cells[first : first + size]


def _place(places: Integers, first: int, size: int, numbers: Integers, start: int, stop: int) -> None:
    """Where the tables of some geounits begin."""
    for lane in range(start, stop):
        places[lane - start] = first + numbers[lane] * size


def _find(
    places: Integers, data: Float, first: int, size: int, members: Integers, firsts: Integers, start: int, stop: int,
    totals: Float, is_single: bool,
) -> None:  # fmt: skip
    """Where the tables of some lanes begin: in data, or in totals, where several are added up."""
    if is_single:
        _place(places, first, size, members, start, stop)
    for lane in range(start, start if is_single else stop):
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


def _enter(
    tile: Float, at: int, stride: int, tables: Float, places: Integers, size: int, lanes: int, columns: int
) -> None:
    """Write a table of each of some geounits into its lane, eight of them side by side."""
    first = 0
    while columns == 1 and first + 8 <= lanes:
        _enter_eight(tile, at + first, stride, tables, places[first : first + 8], size)
        first += 8
    for lane in range(first, lanes):
        to, step, one = np.uint64(at + lane * columns), np.uint64(stride), np.uint64(1)
        place = np.uint64(places[lane])
        for _ in range(size // columns):
            for k in range(np.uint64(0), np.uint64(columns), one):
                tile[to + k] = tables[place + k]
            to += step
            place += np.uint64(columns)


def _enter_eight(tile: Float, at: int, stride: int, tables: Float, places: Integers, size: int) -> None:
    to, step = np.uint64(at), np.uint64(stride)
    p0, p1, p2, p3 = np.uint64(places[0]), np.uint64(places[1]), np.uint64(places[2]), np.uint64(places[3])
    p4, p5, p6, p7 = np.uint64(places[4]), np.uint64(places[5]), np.uint64(places[6]), np.uint64(places[7])
    one, two, four = np.uint64(1), np.uint64(2), np.uint64(4)
    for c in range(np.uint64(0), np.uint64(size), one):
        tile[to], tile[to + one] = tables[p0 + c], tables[p1 + c]
        tile[to + two], tile[to + two + one] = tables[p2 + c], tables[p3 + c]
        tile[to + four], tile[to + four + one] = tables[p4 + c], tables[p5 + c]
        tile[to + four + two], tile[to + four + two + one] = tables[p6 + c], tables[p7 + c]
        to += step


def _leave(
    tile: Float, stride: int, rows: Integers, row: int, tables: Float, places: Integers, size: int, lanes: int,
    columns: int,
) -> None:  # fmt: skip
    """Write a table of each of some geounits from its lane, one row of the tile after another."""
    zero, one, last = np.uint64(0), np.uint64(1), np.uint64(lanes)
    for c in range(size // columns):
        first, cell = np.uint64(rows[row + c] * stride), np.uint64(c * columns)
        if columns == 1:
            for lane in range(zero, last, one):
                tables[np.uint64(places[lane]) + cell] = tile[first + lane]
        else:
            for lane in range(zero, last, one):
                place = np.uint64(places[lane]) + cell
                for k in range(zero, np.uint64(columns), one):
                    tables[place + k] = tile[first + k]
                first += np.uint64(columns)


def _sum_lines(
    line: Float, starts: Integers, length: int, sums: Float, each: int, margins: Integers, columns: int, lanes: int
) -> None:
    """Margins of some lines, one line after another."""
    room = np.empty(1 + length // 4)
    for lane in range(lanes):
        stop = lane * each
        for i in range(margins.shape[0]):
            start, after = margins[i, 0] * columns, margins[i, 3] * columns
            own, at = (line, starts[lane]) if start < length else (sums, lane * each - length)
            _sum_axis(own, at + start, margins[i, 1], margins[i, 2], after, sums, stop, room)
            stop += margins[i, 1] * after


def _sum_axis(array: Float, at: int, before: int, levels: int, after: int, total: Float, to: int, room: Float) -> None:
    zero, one, step = np.uint64(0), np.uint64(1), np.uint64(after)
    quarter = np.uint64(levels // 4)
    for b in range(before):
        first, own = np.uint64(at + b * levels * after), np.uint64(to + b * after)
        if after == 1 and levels < FOLDED:
            total[own] = _sum_run(array, at + b * levels, levels)
        elif after == 1:
            for c in range(first, first + quarter, one):
                pair, third = array[c] + array[c + quarter], c + quarter + quarter
                room[c - first] = pair + (array[third] + array[third + quarter])
            rest = levels % 4
            total[own] = _sum_run(room, 0, levels // 4) + _sum_run(array, at + (b + 1) * levels - rest, rest)
        else:
            for a in range(zero, step, one):
                total[own + a] = array[first + a]
            for _ in range(1, levels):
                first += step
                for a in range(zero, step, one):
                    total[own + a] += array[first + a]


def _sum_run(array: Float, first: int, size: int) -> float:
    """In eight parts, which a processor adds up side by side."""
    a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    i, one = np.uint64(first), np.uint64(1)
    for _ in range(size // 8):
        a0 += array[i]
        a1 += array[i + one]
        a2 += array[i + np.uint64(2)]
        a3 += array[i + np.uint64(3)]
        a4 += array[i + np.uint64(4)]
        a5 += array[i + np.uint64(5)]
        a6 += array[i + np.uint64(6)]
        a7 += array[i + np.uint64(7)]
        i += np.uint64(8)
    for _ in range(size % 8):
        a0 += array[i]
        i += one
    return ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))


def _add_rows(
    tile: Float, stride: int, width: int, targets: Integers, lengths: Integers, terms: Integers, sources: Integers,
    factors: Float, soon: int, length: int, data: Float, at: int, members: Integers, out: Float, to: int, own: Integers,
) -> None:  # fmt: skip
    """Sums of rows, two terms at a time; in a run of rows with what is between them.

    Meanwhile memory is asked for as many lines as are `soon` read, and written, after them.
    """
    lane, asked, share = 0, 0, 1 + soon * length // (LINE * max(1, targets.size))
    for i in range(targets.size):
        if lane < soon:
            for c in range(asked, asked + share * LINE, LINE):
                prefetch(data, at + members[lane] * length + c)
                prefetch(out, to + own[lane] * length + c)
            asked += share * LINE
            if asked >= length:
                lane, asked = lane + 1, 0
        size, term, last = np.uint64((lengths[i] - 1) * stride + width), terms[i], terms[i + 1]
        target, step, zero, one = np.uint64(targets[i] * stride), np.uint64(stride), np.uint64(0), np.uint64(1)
        if term == last:
            for c in range(zero, size, one):
                tile[target + c] = 0.0
        elif (last - term) % 2:
            factor, row = factors[term], np.uint64(sources[term]) * step
            for c in range(zero, size, one):
                tile[target + c] = factor * tile[row + c]
            term += 1
        else:
            factor, row = factors[term], np.uint64(sources[term]) * step
            other, beside = factors[term + 1], np.uint64(sources[term + 1]) * step
            for c in range(zero, size, one):
                tile[target + c] = factor * tile[row + c] + other * tile[beside + c]
            term += 2
        while term < last:
            factor, row = factors[term], np.uint64(sources[term]) * step
            other, beside = factors[term + 1], np.uint64(sources[term + 1]) * step
            for c in range(zero, size, one):
                tile[target + c] += factor * tile[row + c] + other * tile[beside + c]
            term += 2


def _write_line(
    line: Float, at: int, length: int, parts: Float, part: int, boxes: Integers, runs: Integers, spread: Float,
    room: int, columns: int, out: Float, to: int,
) -> None:  # fmt: skip
    """A line, its part of what is added to it, and margins, run by run."""
    size = length // runs.shape[1]
    for run in range(runs.shape[1]):
        value, beside, stop = 0.0, -1, room
        for i in range(boxes.shape[0]):
            box = stop + runs[i, run] * columns
            if boxes[i, 2]:
                beside = box if beside < 0 else beside
            elif columns == 1:
                value += spread[np.uint64(box)]
            stop += boxes[i, 0] * columns
        _write_run(out, to, line, at, parts, part, spread, beside, value, size)
        stop = room
        for i in range(boxes.shape[0]):
            box = stop + runs[i, run] * columns
            if (boxes[i, 2] and box != beside) or (columns > 1 and not boxes[i, 2]):
                _add_box(out, to, spread, box, size, columns if not boxes[i, 2] else size)
            stop += boxes[i, 0] * columns
        at, to, part = at + size, to + size, part + size if part >= 0 else part


def _write_run(
    out: Float, to: int, line: Float, at: int, parts: Float, part: int, boxes: Float, box: int, value: float, size: int
) -> None:
    """Numbers of a line, a value, and of what begins at 0 or later those beside."""
    result, first, own, beside = np.uint64(to), np.uint64(at), np.uint64(part), np.uint64(box)
    zero, one, last = np.uint64(0), np.uint64(1), np.uint64(size)
    if part >= 0 and box >= 0:
        for c in range(zero, last, one):
            out[result + c] = (line[first + c] + parts[own + c]) + (boxes[beside + c] + value)
    elif part >= 0:
        for c in range(zero, last, one):
            out[result + c] = line[first + c] + (parts[own + c] + value)
    elif box >= 0:
        for c in range(zero, last, one):
            out[result + c] = line[first + c] + (boxes[beside + c] + value)
    else:
        for c in range(zero, last, one):
            out[result + c] = line[first + c] + value


def _add_box(out: Float, to: int, spread: Float, box: int, size: int, length: int) -> None:
    """Add a box, again and again where it is shorter."""
    for first in range(0, size, length):
        for c in range(length):
            out[to + first + c] += spread[box + c]
