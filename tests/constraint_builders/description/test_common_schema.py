"""Which variables of several schemas are the same: those of one name and the same labels, or said to be."""

from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, joint
from constraint_builders.description.common_schema import common_schema
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses

NAMES = ("owner", "hispanic", "sex")
LABELS = (("yes", "no"), ("no", "yes"), ("f", "m"), ("0", "1"), ("a", "b", "c"))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    variables = {name: draw(st.sampled_from(LABELS)) for name in names}
    if draw(st.booleans()) and len(names) < len(NAMES):
        return Schema(
            {**variables, "age": 3},
            recodes={"age": {next(name for name in NAMES if name not in names): ["no", "yes", "yes"]}},
        )
    return Schema(variables)


@examples(400, 150)
@given(
    first=schemas(),
    second=schemas(),
    said=st.dictionaries(st.sampled_from(NAMES), st.sampled_from((*NAMES, "age")), max_size=1),
)
def test_nothing_is_merged_that_has_another_name_or_other_labels_unless_it_is_said(
    first: Schema, second: Schema, said: dict[str, str]
) -> None:
    try:
        common = common_schema({"first": first, "second": second}, None, said)
    except ValueError:
        held = set(first.variables) <= set(second.variables) or set(second.variables) <= set(first.variables)
        assert said or first.recodes or second.recodes or not held
        return
    for name, own in (("first", first), ("second", second)):
        for variable in own.variables:
            factor = common.factors[name][variable.name]
            labels = common.schema.labels_of(factor)
            if variable.name in said:
                assert factor == said[variable.name]
                assert labels == variable.levels or set(labels) != set(variable.levels)
            else:
                assert (factor, labels) == (variable.name, variable.levels)


def test_most_pairs_that_have_one_name_and_the_same_labels_are_joined() -> None:
    for labels in LABELS:
        one = Schema({"owner": labels})
        assert common_schema({"1": one, "2": one}, None, {}).factors["2"] == {"owner": "owner"}


@every("name", ["ower", "age", "total"])
def test_what_is_said_of_a_variable_that_no_problem_has_is_refused(name: str) -> None:
    problem = Problem(Schema({"owner": 2}), {"owner": 1.0})
    refuses(repr(name), joint, problem, problem, recodes={name: "owner"})
    refuses(repr(name), joint, problem, problem, recodes={"owner": name})


def test_every_match_is_said_with_labels_that_differ() -> None:
    fine = Schema({"age": 3, "sex": ["f", "m"]}, recodes={"age": {"adult": ["no", "yes", "yes"]}})
    coarse = Schema({"adult": ["no", "yes"], "gender": ["women", "men"]})
    common = common_schema({"fine": fine, "coarse": coarse}, None, {"gender": "sex"})
    assert common.matches("fine", fine) == ["age", "sex"]
    adult, gender = common.matches("coarse", coarse)
    assert adult == "adult (of age)"
    assert all(word in gender for word in ("gender is sex", "'women' is 'f'", "'men' is 'm'"))
