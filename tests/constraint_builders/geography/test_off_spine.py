"""Distances of entities from a spine, against a search over all ways to add and subtract geounits."""

from itertools import product

import numpy as np
import pytest

from constraint_builders import Spine
from constraint_builders.geography import Entities, NotComposableError, compositions, leaves, osed, summarise_osed
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.random_trees import blocks_below, random_entities, random_spine, uneven_spine
from tests.helpers.refused import refused, refuses


def fewest_geounits(spine, usable=None):
    """For every set of blocks that some sum of usable geounits with signs equals, the fewest; exhaustive."""
    usable = np.ones(spine.size, dtype=bool) if usable is None else usable
    signs = np.array(list(product(*((-1, 0, 1) if own else (0,) for own in usable))))
    composed = signs @ blocks_below(spine).astype(int)
    used = np.abs(signs).sum(axis=1)
    best = {}
    for blocks, count in zip(map(tuple, composed[(composed >= 0).all(1) & (composed <= 1).all(1)].tolist()),
                             used[(composed >= 0).all(1) & (composed <= 1).all(1)].tolist(), strict=True):  # fmt: skip
        best[blocks] = min(best.get(blocks, count), count)
    return best


@every("seed", range(40))
def test_compositions_compose_with_as_many_geounits_as_the_distance(seed):
    rng = np.random.default_rng(seed)
    spine = random_spine(rng, int(rng.integers(1, 5)), 5) if seed % 2 else uneven_spine(rng, int(rng.integers(2, 60)))
    entities = random_entities(rng, leaves(spine).size, 12)
    signs = compositions(spine, entities)
    assert np.array_equal(signs @ blocks_below(spine), entities.contains.toarray())
    assert np.array_equal(np.diff(signs.indptr), osed(spine, entities))


@lengths("seeds", 60, 180)
def test_compositions_of_usable_geounits_equal_exhaustive_search(seeds):
    """Of some geounits, or of all, whose number is then the distance."""
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        spine = uneven_spine(rng, int(rng.integers(1, 9)))
        usable = rng.random(spine.size) < (0.7 if seed % 3 else 1.0)
        best = fewest_geounits(spine, usable)
        for blocks in list(product((0, 1), repeat=leaves(spine).size))[1:]:
            entity = Entities(["e"], [blocks])
            if blocks in best:
                signs = compositions(spine, entity, usable).toarray()[0]
                assert (signs @ blocks_below(spine)).tolist() == list(blocks)
                assert abs(signs).sum() == best[blocks]
                assert not usable.all() or osed(spine, entity) == [best[blocks]]
                assert not signs[~usable].any()
            else:
                with pytest.raises(NotComposableError, match="entity 'e' cannot be composed of the usable geounits"):
                    compositions(spine, entity, usable)


@every("seed", range(20))
def test_entities_from_geounits_at_any_level(seed):
    rng = np.random.default_rng(seed)
    spine = uneven_spine(rng, int(rng.integers(2, 40)))
    below = blocks_below(spine)
    given = {}
    signs_of_each = compositions(spine, random_entities(rng, leaves(spine).size, 3)).toarray()
    for name, signs in zip("abc", signs_of_each, strict=True):
        added = rng.permutation(np.flatnonzero(signs == 1))
        given[name] = [own for i, own in enumerate(added) if not below[added[:i]].sum(axis=0) @ below[own]]
    found = Entities.from_geounits(spine, given)
    assert found.names == tuple(given)
    assert np.array_equal(found.contains.toarray(), [below[disjoint].sum(axis=0) for disjoint in given.values()])


def test_geounits_that_make_no_entity_are_refused_by_name():
    spine = Spine([-1, 0, 0], ["County", "Block", "Block"], ["1", "1a", "1b"])
    for x, said in (
        ([0, 2], "block '1b' 2 times: give disjoint"),
        ([3], "a geounit outside the spine: positions run to 2"),
    ):
        refuses(f"entity 'x' has {said}", Entities.from_geounits, spine, {"y": [0], "x": x})


def test_of_choices_that_are_equally_short_the_larger_geounits_are_taken():
    spine = Spine.from_geocodes({"State": ["1"], "County": ["11", "12"], "Block": ["11a", "12a", "12b"]})
    signs = compositions(spine, Entities(["one block"], [[1, 0, 0]])).toarray()
    assert np.flatnonzero(signs[0]).tolist() == [spine.position("County", "11")]


def test_summary():
    summary = summarise_osed(np.array([2, 5, 2]))
    assert (summary.mean, summary.maximum, summary.descending.tolist()) == (3.0, 5, [5, 2, 2])


def test_entities_from_codes_have_one_outside_every_category():
    entities = Entities.from_labels({"place": ["A", "", "B", None], "tribe": ["x", "x", "x", "x"]})
    assert entities.names == ("place outside", "place A", "place B", "tribe x")
    assert entities.contains.toarray().tolist() == [[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    assert entities.intersections().tolist() == [0, 1, 2, 1]
    assert Entities.from_labels({"place": ["A", "", "B", None]}, outside=False).names == ("place A", "place B")


@refused(
    (["a", "a"], [[1, 0], [0, 1]], "'a' is given 2 times"),
    (["a"], [[1, 0], [0, 1]], "a row for each of 1 entities"),
    (["a"], [[2, 0]], "0 and 1 only"),
    (["a"], [[0, 0]], "'a' contains no block"),
)
def test_bad_entities_are_refused_by_name(names, contains) -> None:
    Entities(names, contains)


def test_entities_of_other_blocks_are_refused():
    spine = Spine([-1, 0], ["US", "Block"])
    refuses("of 3 blocks, the spine has 1 leaves", osed, spine, Entities(["a"], [[1, 0, 0]]))
