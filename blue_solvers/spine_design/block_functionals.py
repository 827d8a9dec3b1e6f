"""Linear functionals of the blocks' counts: what a spine is to make precise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float, Index, kinds_of_rows
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import make_table, parse_table
from constraint_builders.geography import Entities
from constraint_builders.geography.entities import check_blocks
from constraint_builders.printable import counted
from constraint_builders.relations.marginals import margin_matrix


class BlockFunctionals:
    """Linear functionals, each a weighted sum, over blocks and queries, of queries of a block's cells.

    Parameters
    ----------
    names : sequence of str, (K,)
    queries : array_like or sparse array, (Q, cells)
        Weights over the cells of a block's histogram, in C order.
    weights : array_like or sparse array, (K, L * Q)
        Weights of the queries, those of a block together, blocks in the order of the spine's leaves.

    Raises
    ------
    ValueError
        If shapes differ, a name is repeated, a number is not finite, or a functional is zero.

    Examples
    --------
    Twice the women of the first block less the men of the second:

    >>> import numpy as np
    >>> women_and_men = np.eye(2)
    >>> BlockFunctionals(["difference"], women_and_men, np.array([[2, 0, 0, -1]]))
    BlockFunctionals(1 functional of 2 blocks of 2 cells)
    """

    def __init__(self, names: Sequence[str], queries: Any, weights: Any) -> None:
        self.names = tuple(str(name) for name in names)
        self.queries: sparse.csr_array = sparse.csr_array(queries, dtype=np.float64)
        self.weights: sparse.csr_array = sparse.csr_array(weights, dtype=np.float64)
        self._check()
        self.weights.sum_duplicates()
        self.weights.eliminate_zeros()
        zero = np.flatnonzero(np.diff(self.weights.indptr) == 0)
        if zero.size:
            raise ValueError(f"functional {self.names[zero[0]]!r} is zero: leave it out")

    def _check(self) -> None:
        name, times = Counter(self.names).most_common(1)[0] if self.names else ("", 0)
        if times > 1:
            raise ValueError(f"functional {name!r} is given {times} times: give it once, or another name")
        rows, columns = self.weights.shape
        if not self.names or rows != len(self.names):
            raise ValueError(f"weights must have a row for each of {len(self.names)} functionals: got {rows} rows")
        if not self.queries.shape[0] or columns % self.queries.shape[0]:
            raise ValueError(
                f"weights have {columns} columns, which {self.queries.shape[0]} queries do not divide: give a column "
                "for each query of each block"
            )
        if not (np.isfinite(self.queries.data).all() and np.isfinite(self.weights.data).all()):
            raise ValueError("queries and weights must be finite numbers")

    @classmethod
    def of_entities(cls, entities: Entities, schema: Schema, table: str = "total") -> BlockFunctionals:
        """Every cell of a table in every entity, entity by entity, cells in C order.

        Parameters
        ----------
        entities : Entities
        schema : Schema
        table : str
            A margin, or a table of recodes.

        Returns
        -------
        BlockFunctionals
        """
        wanted = parse_table(schema, table)
        queries = margin_matrix(schema, make_table(schema, schema.names), wanted)
        cells = range(wanted.size)
        names = [f"{name} {cell}" if wanted.size > 1 else name for name in entities.names for cell in cells]
        return cls(names, queries, sparse.kron(entities.contains, sparse.eye_array(wanted.size), format="csr"))

    @property
    def size(self) -> int:
        """Number of functionals."""
        return len(self.names)

    @property
    def blocks(self) -> int:
        """Number of blocks of the geography."""
        return self.weights.shape[1] // self.queries.shape[0]

    @property
    def cells(self) -> int:
        """Number of cells of a block's histogram."""
        return self.queries.shape[1]

    def by_block(self) -> sparse.csr_array:
        """The weights with a row for every block, (L, K * Q).

        Returns
        -------
        csr_array, (L, K * Q)
        """
        own, kept = sparse.coo_array(self.weights), self.queries.shape[0]
        block, query = np.divmod(own.col, kept)
        shape = (self.blocks, self.size * kept)
        return sparse.csr_array(sparse.coo_array((own.data, (block, own.row * kept + query)), shape=shape))

    def kinds(self) -> Index:
        """For every block the number of its kind, (L,): blocks of a kind have the same weights in all functionals.

        Returns
        -------
        ndarray of int, (L,)
        """
        return kinds_of_rows(self.by_block())

    def __repr__(self) -> str:
        size = counted(self.size, "functional")
        return f"BlockFunctionals({size} of {self.blocks:,} blocks of {self.cells:,} cells)"


def read_functionals(given: Entities | BlockFunctionals, schema: Schema, blocks: int) -> BlockFunctionals:
    """Entities as functionals, their totals; functionals as they are.

    Raises
    ------
    ValueError
        If they are of another number of blocks, or of other cells than the schema's.
    """
    check_blocks(blocks, given.blocks, "entities" if isinstance(given, Entities) else "functionals")
    functionals = BlockFunctionals.of_entities(given, schema) if isinstance(given, Entities) else given
    cells = make_table(schema, schema.names).size
    if functionals.cells != cells:
        raise ValueError(f"the queries are of {functionals.cells:,} cells, the schema has {cells:,}")
    return functionals


class CellSpace:
    """The smallest space of cell weights that holds the functionals and that no measured table leads out of.

    Within it, and with nothing outside it, the estimate of the functionals is a problem by itself: of one dimension for
    totals and plain marginals, of as many as recodes and queries tie together otherwise.

    Parameters
    ----------
    schema : Schema
    tables : sequence of str
        All that are measured anywhere.
    functionals : BlockFunctionals

    Raises
    ------
    ValueError
        If it has more than `MOST_DIMENSIONS` dimensions.
    """

    MOST_DIMENSIONS = 64
    TOLERANCE = 1e-9  # relative length at which a direction is rounding

    def __init__(self, schema: Schema, tables: Sequence[str], functionals: BlockFunctionals) -> None:
        detailed = make_table(schema, schema.names)
        sums = {name: margin_matrix(schema, detailed, parse_table(schema, name)) for name in tables}
        self.basis: Float = np.zeros((detailed.size, 0))
        fresh = self._new(functionals.queries.T)
        while fresh.size:
            self.basis = np.hstack([self.basis, fresh])
            images = [matrix.T @ (matrix @ fresh) for matrix in sums.values()]
            fresh = self._new(np.hstack(images)) if images else fresh[:, :0]
        images_of = {name: matrix @ self.basis for name, matrix in sums.items()}
        self.information = {name: columns.T @ columns for name, columns in images_of.items()}
        weights = functionals.by_block() @ sparse.kron(
            sparse.eye_array(functionals.size), functionals.queries @ self.basis, format="csr"
        )
        self.weights: sparse.csr_array = sparse.csr_array(weights)  # (L, K * d)
        self.squares = self._outer_squares(functionals.size)  # (L, K * d * d)

    @property
    def dimensions(self) -> int:
        """Number of dimensions, d."""
        return self.basis.shape[1]

    def _new(self, directions: Any) -> Float:
        """An orthonormal basis of what directions add to the space, (cells, new)."""
        dense: Float = directions.toarray() if sparse.issparse(directions) else np.asarray(directions)
        lengths = np.linalg.norm(dense, axis=0)
        found: list[NDArray[np.float64]] = []
        for column, length in zip(dense.T, lengths, strict=True):
            left = column
            for _ in range(2):  # the second pass takes away what rounding left
                left = left - self.basis @ (self.basis.T @ left)
                for own in found:
                    left = left - own * (own @ left)
            size = float(np.linalg.norm(left))
            if size > self.TOLERANCE * length:
                found.append(left / size)
                self._refuse_more(len(found))
        return np.column_stack(found) if found else np.zeros((dense.shape[0], 0))

    def _refuse_more(self, new: int) -> None:
        if self.dimensions + new > self.MOST_DIMENSIONS:
            raise ValueError(
                f"the functionals and the measured tables tie more than {self.MOST_DIMENSIONS} combinations of cells "
                "together: optimise for fewer queries, or a coarser table, then judge the spine by `compare_spines`"
            )

    def _outer_squares(self, size: int) -> sparse.csr_array:
        """Products of a block's weights of one functional with one another."""
        identity, d = sparse.eye_array(size), self.dimensions
        first = self.weights @ sparse.kron(identity, np.kron(np.eye(d), np.ones((1, d))), format="csr")
        second = self.weights @ sparse.kron(identity, np.kron(np.ones((1, d)), np.eye(d)), format="csr")
        return sparse.csr_array(first.multiply(second))
