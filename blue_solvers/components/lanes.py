"""Linear maps of many geounits at once, a tile of them after another, in numpy and as a loop to be compiled.

A lane is a geounit, or several that are added up, and a column. A tile holds a row of numbers for every cell of some
lanes: their tables are read into it, sums of rows (`row_program`) are done on it, and tables are written from it, so
that nothing but the tables themselves leaves the cache. What a lane gets does not depend on which lanes are beside it.

A finest table of many cells never enters the tile. It stays a line of cells, of which margins enter the tile, and to
which margins of the tile are added when it is written.

Arguments of both:

data : ndarray, (n K,)
    Tables of all geounits, one after the other; K numbers for every cell.
columns : int
    K.
firsts, members : ndarray of int, (N + 1,) and (members,)
    Which geounits each of N lanes adds up.
classes : ndarray of int, (N,)
    Of all that a lane adds up, the row of `factors`.
inputs : ndarray of int, (tables, 3)
    Of every table read into the tile: where it starts in `data`, in cells, its cells, and its first row of the tile.
line : ndarray of int, (2,)
    Of the finest table: where it starts in `data`, and its cells; 0 where it is among the inputs.
margins : ndarray of int, (margins, 5)
    Sums along an axis of the line, which margins follow: where it is read, cells before the axis, its levels, cells
    after it, and the first row of the tile that it goes to, or -1.
parts, part_of : ndarray (P, cells K) and ndarray of int (N,)
    What is added to the finest table, and which of it to each lane; P may be 0, which adds nothing.
first_part : int
    Where parts go in the tile; -1 where they are added to the line.
targets, lengths, terms, sources, factors
    Runs of sums of rows.
outputs : ndarray of int, (tables, 3)
    Of every table written from the tile: where it starts in `out`, in cells, its cells, and where its rows start in
    `written`.
written : ndarray of int
    Rows.
boxes : ndarray of int, (boxes, 3)
    Margins of the tile that are added to the line: how many cells, where its rows start in `written`, and 1 if it has a
    cell for each of a run, 0 if one for all of it.
runs : ndarray of int, (boxes, runs)
    Where in every box each run of the line's cells starts.
line_out : int
    Where the line is written in `out`, in cells.
out, rows_out : ndarray (m K,) and ndarray of int (N,)
    Tables of all geounits, and which row of each is a lane's.
rows : int
    Of the tile.
"""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

LANES = 64  # of a tile
FEW_LANES = 32  # of one of many rows
MOST_ROWS = 400
BESIDE = 8  # numbers between rows: else those of one lane would fall on few places of the cache


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
    tile = np.zeros((rows, most * columns + BESIDE))
    length, longest, in_margins, in_boxes = line[1] * columns, 0, 0, 0
    for i in range(inputs.shape[0]):
        longest = max(longest, inputs[i, 1] * columns)
    for i in range(margins.shape[0]):
        in_margins += margins[i, 1] * margins[i, 3] * columns
    for i in range(boxes.shape[0]):
        in_boxes += boxes[i, 0] * columns
    total, sums, spread = np.empty(longest), np.empty(in_margins), np.empty(in_boxes)
    lines = np.empty((most, length))
    cells, stride, is_single = tile.ravel(), tile.shape[1], members.size == rows_out.size
    all_parts, all_lines = parts.ravel(), lines.ravel()
    start = 0
    while start < rows_out.size:
        stop = start + 1
        while stop < rows_out.size and stop < start + most and classes[stop] == classes[start]:
            stop += 1
        for i in range(inputs.shape[0]):
            first, size, at = inputs[i, 0] * columns, inputs[i, 1] * columns, inputs[i, 2] * stride
            if is_single:
                _enter(cells, at, stride, data, first, size, members, start, stop, columns)
            else:
                for lane in range(start, stop):
                    _add_up(data, first, members, firsts[lane], firsts[lane + 1], total, size)
                    _enter_one(cells, at + (lane - start) * columns, stride, total, 0, size, columns)
        if first_part >= 0 and parts.shape[0]:
            _enter(cells, first_part * stride, stride, all_parts, 0, parts.shape[1], part_of, start, stop, columns)
        for lane in range(start, stop if length else start):
            place, first = (lane - start) * columns, line[0] * columns
            if is_single:
                at = first + members[lane] * length
                _sum_line(data, at, length, sums, margins, columns, cells, place, stride)
            else:
                _add_up(data, first, members, firsts[lane], firsts[lane + 1], lines[lane - start], length)
                at = (lane - start) * length
                _sum_line(all_lines, at, length, sums, margins, columns, cells, place, stride)
        _add_rows(cells, stride, (stop - start) * columns, targets, lengths, terms, sources, factors[classes[start]])
        for i in range(outputs.shape[0]):
            first, size = outputs[i, 0] * columns, outputs[i, 1] * columns
            _leave(cells, stride, written, outputs[i, 2], out, first, size, rows_out, start, stop, columns)
        for lane in range(start, stop if length else start):
            place, room = (lane - start) * columns, 0
            for i in range(boxes.shape[0]):
                _leave_one(cells, place, stride, written, boxes[i, 1], spread, room, boxes[i, 0] * columns, columns)
                room += boxes[i, 0] * columns
            part = part_of[lane] * length if parts.shape[0] else -1
            to = line_out * columns + rows_out[lane] * length
            if is_single:
                at = line[0] * columns + members[lane] * length
                _write_line(data, at, length, all_parts, part, boxes, runs, spread, columns, out, to)
            else:
                at = (lane - start) * length
                _write_line(all_lines, at, length, all_parts, part, boxes, runs, spread, columns, out, to)
        start = stop


def _add_up(data: Float, start: int, members: Integers, first: int, last: int, total: Float, size: int) -> None:
    """Sum a table over geounits, two of them at a time."""
    sums, place = total[:size], start + members[first] * size
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
    tile: Float, at: int, stride: int, tables: Float, first: int, size: int, numbers: Integers, start: int, stop: int,
    columns: int,
) -> None:  # fmt: skip
    """Write a table of each of some geounits into its lane."""
    for lane in range(start, stop):
        _enter_one(tile, at + (lane - start) * columns, stride, tables, first + numbers[lane] * size, size, columns)


def _enter_one(tile: Float, at: int, stride: int, table: Float, first: int, size: int, columns: int) -> None:
    to, step, place, one = np.uint64(at), np.uint64(stride), np.uint64(first), np.uint64(1)
    if columns == 1:
        for _ in range(size):
            tile[to] = table[place]
            to += step
            place += one
    else:
        for _ in range(size // columns):
            for k in range(columns):
                tile[to + np.uint64(k)] = table[place + np.uint64(k)]
            to += step
            place += np.uint64(columns)


def _leave(
    tile: Float, stride: int, rows: Integers, row: int, tables: Float, first: int, size: int, numbers: Integers,
    start: int, stop: int, columns: int,
) -> None:  # fmt: skip
    """Write a table of each of some geounits from its lane."""
    for lane in range(start, stop):
        place = (lane - start) * columns
        _leave_one(tile, place, stride, rows, row, tables, first + numbers[lane] * size, size, columns)


def _leave_one(
    tile: Float, at: int, stride: int, rows: Integers, row: int, table: Float, first: int, size: int, columns: int
) -> None:
    if columns == 1:
        for c in range(size):
            table[np.uint64(first + c)] = tile[np.uint64(rows[row + c] * stride + at)]
    else:
        for c in range(size // columns):
            for k in range(columns):
                table[first + c * columns + k] = tile[rows[row + c] * stride + at + k]


def _sum_line(
    line: Float, at: int, length: int, sums: Float, margins: Integers, columns: int, tile: Float, place: int,
    stride: int,
) -> None:  # fmt: skip
    """Margins of a line, those wanted into a lane."""
    stop = 0
    for i in range(margins.shape[0]):
        start, before, levels, after = margins[i, 0] * columns, margins[i, 1], margins[i, 2], margins[i, 3] * columns
        if start < length:
            _sum_axis(line, at + start, before, levels, after, sums, stop)
        else:
            _sum_axis(sums, start - length, before, levels, after, sums, stop)
        if margins[i, 4] >= 0:
            _enter_one(tile, margins[i, 4] * stride + place, stride, sums, stop, before * after, columns)
        stop += before * after


def _sum_axis(array: Float, at: int, before: int, levels: int, after: int, total: Float, to: int) -> None:
    for b in range(before):
        first, own = np.uint64(at + b * levels * after), np.uint64(to + b * after)
        if after == 1:
            total[own] = _sum_run(array, at + b * levels * after, levels)
        else:
            for a in range(np.uint64(0), np.uint64(after), np.uint64(1)):
                total[own + a] = array[first + a]
            for _ in range(1, levels):
                first += np.uint64(after)
                for a in range(np.uint64(0), np.uint64(after), np.uint64(1)):
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
    factors: Float,
) -> None:  # fmt: skip
    """Sums of rows, two terms at a time; in a run of rows with what is between them."""
    for i in range(targets.size):
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
    columns: int, out: Float, to: int,
) -> None:  # fmt: skip
    """A line, its part of what is added to it, and margins, run by run."""
    zero, one, size = np.uint64(0), np.uint64(1), np.uint64(length // runs.shape[1])
    first, own, result = np.uint64(at), np.uint64(part), np.uint64(to)
    for run in range(runs.shape[1]):
        if part >= 0:
            for c in range(zero, size, one):
                out[result + c] = line[first + c] + parts[own + c]
        else:
            for c in range(zero, size, one):
                out[result + c] = line[first + c]
        stop = 0
        for i in range(boxes.shape[0]):
            box = np.uint64(stop + runs[i, run] * columns)
            if boxes[i, 2]:
                for c in range(zero, size, one):
                    out[result + c] += spread[box + c]
            elif columns == 1:
                value = spread[box]
                for c in range(zero, size, one):
                    out[result + c] += value
            else:
                for c in range(zero, size, np.uint64(columns)):
                    for k in range(zero, np.uint64(columns), one):
                        out[result + c + k] += spread[box + k]
            stop += boxes[i, 0] * columns
        first += size
        own += size
        result += size
