"""What messages about a whole component say of the pieces that it falls apart into."""

from __future__ import annotations

import numpy as np
import pytest

from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.splitting import Copies, Tied


@pytest.mark.parametrize("tied", [0, 1])
def test_messages_of_a_component_are_told_to_its_pieces(tied: int) -> None:
    """Five numbers: of the eigenspace of three `tied` belong to another piece, the others are copies of one number."""
    Q = np.linalg.qr(np.random.default_rng(tied).standard_normal((5, 5)))[0]
    space, rest = Q[:, :3], Q[:, 3:]
    along = space[:, :tied]
    copies, other = Copies({"a": 4.0}, space, along), Tied({}, np.column_stack([along, rest]))
    free = space[:, tied:]
    assert copies.rows["a"] == pytest.approx(np.full((1, 1), 2.0))

    covariance = 9.0 * free @ free.T + rest @ np.diag([2.0, 5.0]) @ rest.T
    root = np.linalg.cholesky(covariance + along @ along.T)
    exact, unknown = np.zeros((5, 5)), np.zeros((5, 5))
    told = copies.of_message(Message(root[None], np.linalg.inv(root)[None], unknown[None], exact[None]))
    assert told.root[0] == pytest.approx(np.full((1, 1), 3.0))
    assert told.information_root[0] == pytest.approx(np.full((1, 1), 1 / 3))
    assert not told.unknown.any()
    assert not told.exact.any()
    own = other.of_root(root)
    expected = np.diag([*np.ones(tied), 2.0, 5.0])
    assert own @ own.T == pytest.approx(expected, abs=1e-12)

    flags = Message(np.zeros((1, 5, 5)), np.zeros((1, 5, 5)), (free @ free.T)[None], (rest @ rest.T)[None])
    told = copies.of_message(flags)
    assert (told.unknown.item(), told.exact.item()) == (1, 0)
    told = copies.of_message(Message(flags.root, flags.root, flags.exact, flags.unknown))
    assert (told.unknown.item(), told.exact.item()) == (0, 1)
    told = other.of_message(flags)
    assert told.unknown[0] == pytest.approx(np.zeros((2 + tied, 2 + tied)), abs=1e-12)
    assert told.exact[0] == pytest.approx(np.diag([*np.zeros(tied), 1.0, 1.0]), abs=1e-12)
