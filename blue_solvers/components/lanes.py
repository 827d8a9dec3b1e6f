"""Linear maps of many geounits at once, a tile of them after another, in numpy and as a loop to be compiled.

A lane is a geounit, or several that are added up, and a column. A tile holds a row of numbers for every cell of some
lanes: their tables are read into it, sums of rows (`row_program`) are done on it, and tables are written from it, so that
nothing but the tables themselves leaves the cache. What a lane gets does not depend on which lanes are beside it.

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
FEW_LANES = 32
MOST_ROWS = 400
BESIDE = 8  # numbers between rows: else those of one lane would fall on few places of the cache


def map_lanes_in_numpy(
    data: Float, columns: int, firsts: Integers, members: Integers, classes: Integers, inputs: Integers,
    line: Integers, margins: Integers, parts: Float, part_of: Integers, first_part: int, targets: Integers,
    lengths: Integers, terms: Integers, sources: Integers, factors: Float, outputs: Integers, written: Integers, boxes: Integers,
    runs: Integers, line_out: int, out: Float, rows_out: Integers, rows: int,
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
        own = slice(terms[i], terms[i + 1])
        read = tile[sources[own, None] + np.arange(length)]
        tile[target : target + length] = np.einsum("trlk,lt->rlk", read, factors[classes, own])
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
    lengths: Integers, terms: Integers, sources: Integers, factors: Float, outputs: Integers, written: Integers, boxes: Integers,
    runs: Integers, line_out: int, out: Float, rows_out: Integers, rows: int,
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
    all_parts = parts.ravel()
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
        if length:
            first = line[0] * columns
            for lane in range(start, stop):
                place, at = (lane - start) * columns, first + members[lane] * length
                if is_single:
                    _sum_line(data[at : at + length], sums, margins, columns, cells, place, stride)
                else:
                    own = lines[lane - start]
                    _add_up(data, first, members, firsts[lane], firsts[lane + 1], own, length)
                    _sum_line(own, sums, margins, columns, cells, place, stride)
        _add_rows(cells, stride, (stop - start) * columns, targets, lengths, terms, sources, factors[classes[start]])
        for i in range(outputs.shape[0]):
            first, size = outputs[i, 0] * columns, outputs[i, 1] * columns
            _leave(cells, stride, written, outputs[i, 2], out, first, size, rows_out, start, stop, columns)
        if length:
            for lane in range(start, stop):
                place, first = (lane - start) * columns, line_out * columns + rows_out[lane] * length
                result, at = out[first : first + length], line[0] * columns + members[lane] * length
                if is_single:
                    _add_part(data[at : at + length], parts, part_of[lane], result)
                else:
                    _add_part(lines[lane - start], parts, part_of[lane], result)
                _spread_boxes(cells, place, stride, boxes, runs, written, spread, result, columns)
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
    line: Float, sums: Float, margins: Integers, columns: int, tile: Float, place: int, stride: int
) -> None:
    """Margins of a line, those wanted into a lane."""
    stop = 0
    for i in range(margins.shape[0]):
        start, before, levels, after = margins[i, 0] * columns, margins[i, 1], margins[i, 2], margins[i, 3] * columns
        size = before * after
        own = sums[stop : stop + size]
        if start < line.size:
            _sum_axis(line, before, levels, after, own)
        else:
            _sum_axis(sums[start - line.size :], before, levels, after, own)
        if margins[i, 4] >= 0:
            _enter_one(tile, margins[i, 4] * stride + place, stride, own, 0, size, columns)
        stop += size


def _sum_axis(array: Float, before: int, levels: int, after: int, total: Float) -> None:
    for b in range(before):
        own, first = total[b * after : (b + 1) * after], b * levels * after
        if after == 1:
            own[0] = _sum_run(array[first : first + levels])
        else:
            for a in range(after):
                own[a] = array[first + a]
            for level in range(1, levels):
                run = array[first + level * after : first + (level + 1) * after]
                for a in range(after):
                    own[a] += run[a]


def _sum_run(run: Float) -> float:
    """In eight parts, which a processor adds up side by side."""
    a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(run.size // 8):
        a0 += run[8 * i]
        a1 += run[8 * i + 1]
        a2 += run[8 * i + 2]
        a3 += run[8 * i + 3]
        a4 += run[8 * i + 4]
        a5 += run[8 * i + 5]
        a6 += run[8 * i + 6]
        a7 += run[8 * i + 7]
    for i in range(run.size // 8 * 8, run.size):
        a0 += run[i]
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


def _add_part(line: Float, parts: Float, number: int, result: Float) -> None:
    if parts.shape[0]:
        part = parts[number]
        for c in range(result.size):
            result[c] = line[c] + part[c]
    else:
        for c in range(result.size):
            result[c] = line[c]


def _spread_boxes(
    tile: Float, place: int, stride: int, boxes: Integers, runs: Integers, written: Integers, spread: Float, result: Float,
    columns: int,
) -> None:  # fmt: skip
    """Add margins of a lane to a line, run by run."""
    stop = 0
    for i in range(boxes.shape[0]):
        size, length = boxes[i, 0] * columns, result.size // runs.shape[1]
        own = spread[stop : stop + size]
        _leave_one(tile, place, stride, written, boxes[i, 1], own, 0, size, columns)
        for run in range(runs.shape[1]):
            first, cells = runs[i, run] * columns, result[run * length : (run + 1) * length]
            if boxes[i, 2]:
                box = own[first : first + length]
                for c in range(length):
                    cells[c] += box[c]
            elif columns == 1:
                value = own[first]
                for c in range(length):
                    cells[c] += value
            else:
                for c in range(length // columns):
                    for k in range(columns):
                        cells[c * columns + k] += own[first + k]
        stop += size
