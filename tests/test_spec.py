"""Fields, actions and plan specs: what is declared is checked, described and stored; wrong ones are not born."""

import json

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from genplan.errors import DataError, UserError
from genplan.spec import Actions, Field, PlanSpec, Stream

from .samples import sample_field

WORDS = ("<pad>", ",", "ball", "box", "go", "red", "the", "then", "to")
FIELDS = {
    "state": Field("category", (), (280,)),
    "grid": Field("grid", (10, 7), (11, 6, 3)),
    "mission": Field("words", (8,), vocabulary=WORDS),
    "carrying": Field("category", (2,), (11, 6)),
    "arm": Field("vector", (4,)),
}
SPEC = PlanSpec(
    FIELDS,
    Actions(6, names=("left", "right")),
    {
        "states": Stream(280, observed="state", points_at="grid", directions=4),
        "goals": Stream(70, (2,), points_at="grid"),
    },
)
ROBOT = Actions(low=(-1, 0), high=(1, 512), origin=("arm", 2))


# --- fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_takes_its_own_examples_and_knows_their_space(name):
    field, rng = FIELDS[name], np.random.default_rng(0)
    example = sample_field(field, rng)
    checked = field.check(example, name)
    assert np.array_equal(checked, example)
    assert (checked.shape, checked.dtype) == (field.array_shape, field.dtype)
    batch = np.stack([sample_field(field, rng) for _ in range(5)])
    assert field.check(batch, name, (5,)).shape == (5, *field.array_shape)
    stored = field.decode(example) if field.kind == "words" else example
    assert field.space().contains(np.int64(stored) if name == "state" else stored)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("state", 280, "x holds 280, expected 0 to 279"),
        ("state", -1, "x holds -1, expected 0 to 279"),
        ("state", [1, 2], r"x has shape \(2,\), expected \(\)"),
        ("state", 1.5, "x has dtype float64, expected whole numbers from 0 to 279"),
        ("state", np.nan, "x has dtype float64; one is nan, expected whole numbers"),
        ("carrying", [1, 6], "x holds 6, expected 0 to 10, 5"),
        ("grid", np.zeros((7, 10, 3), np.uint8), r"x has shape \(7, 10, 3\), expected \(10, 7, 3\)"),
        ("grid", np.full((10, 7, 3), 3), "x holds 3, expected 0 to 10, 5, 2"),
        ("mission", np.full(8, 9), "x holds 9, expected 0 to 8"),
        ("arm", [0, 1, np.inf, 0], "x holds inf, expected finite numbers"),
        ("arm", ["a", "b", "c", "d"], "expected numbers"),
        ("arm", np.zeros(3), r"x has shape \(3,\), expected \(4,\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_both_numbers(name, array, message):
    with pytest.raises(DataError, match=message):
        FIELDS[name].check(array, "x")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "grid", "shape": (3,), "sizes": (2,)}, "a grid field has the shape"),
        ({"kind": "grid", "shape": (3, 3)}, "a grid field has the sizes"),
        ({"kind": "grid", "shape": (0, 3), "sizes": (2,)}, "expected 2 positive numbers"),
        ({"kind": "category", "shape": (2,), "sizes": (3,)}, "2 numbers has 1 sizes, expected 2"),
        ({"kind": "category", "sizes": (0,)}, "expected vocabularies of at least 1"),
        ({"kind": "words", "shape": (3,)}, "0 words, expected padding and at least 1 more"),
        ({"kind": "vector"}, "a vector field has the shape"),
    ],
)
def test_wrong_fields_are_not_born(wrong, message):
    with pytest.raises(ValueError, match=message):
        Field(**wrong)


def test_words_are_tokens_and_unknown_ones_are_told_the_nearest():
    mission = FIELDS["mission"]
    assert mission.decode(mission.encode("Go to the ball, then")) == "go to the ball, then"
    assert mission.encode("go").tolist() == [4, 0, 0, 0, 0, 0, 0, 0]
    with pytest.raises(DataError, match="unknown word 'bal'; did you mean 'ball'"):
        mission.encode("go to the bal")
    with pytest.raises(DataError, match="unknown word 'xyzzy'; known are: , ball"):
        mission.encode("xyzzy")
    with pytest.raises(DataError, match="9 words, expected at most 8"):
        mission.encode("go " * 9)


# --- actions ---------------------------------------------------------------------------------------------------------


def test_actions_are_what_their_space_says():
    for actions in (Actions(6), Actions(low=(-1, 0), high=(1, 512))):
        assert Actions.from_space(actions.space()) == actions
        sampled = np.stack([actions.space().sample() for _ in range(4)])
        checked = actions.check(sampled, "actions")
        assert (checked.shape, checked.dtype) == ((4, *actions.shape), actions.dtype)
    assert SPEC.actions.name(1) == "right"
    assert SPEC.actions.name(5) == "5"
    assert Actions(6, names=("up",)) == Actions(6)
    for space in (spaces.Discrete(3, start=1), spaces.MultiBinary(3), spaces.Box(0, 1, (2, 2))):
        with pytest.raises(DataError, match="expected"):
            Actions.from_space(space)


@pytest.mark.parametrize(
    ("actions", "found", "message"),
    [
        (Actions(6), [0, 6], "x hold 6, expected 0 to 5"),
        (Actions(6), [-1, 6], "x hold -1, expected 0 to 5"),
        (Actions(6), [0.5], "x have dtype float64, expected whole numbers from 0 to 5"),
        (ROBOT, [[0.0, 513.0]], r"x hold 513, expected \(-1, 0\) to \(1, 512\)"),
        (ROBOT, [[0.0, np.nan]], "expected finite numbers"),
        (ROBOT, [0.0, 1.0, 2.0], r"x have shape \(3,\), expected \(steps, 2\)"),
    ],
)
def test_actions_outside_their_space_are_refused(actions, found, message):
    with pytest.raises(DataError, match=message):
        actions.check(found, "x")


def test_rounding_is_forgiven_and_clipped():
    assert ROBOT.check([[1.000001, 512.001]], "x").max() == 512
    assert Actions(6).check(np.zeros(0, np.int64), "x").shape == (0,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 1}, "there are 1 actions, expected at least 2"),
        ({}, "expected as many lower bounds as upper"),
        ({"low": (0,), "high": (1, 2)}, "expected as many lower bounds as upper"),
        ({"low": (2,), "high": (1,)}, "expected finite, rising bounds"),
        ({"low": (0,), "high": (np.inf,)}, "expected finite, rising bounds"),
    ],
)
def test_wrong_actions_are_not_born(wrong, message):
    with pytest.raises(ValueError, match=message):
        Actions(**wrong)


# --- specs -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 9), st.integers(0, 6), st.integers(0, 3))
def test_states_and_cells_decode_to_what_was_encoded(x, y, direction):
    geometry = SPEC.geometry
    assert geometry.pose(geometry.state(x, y, direction)) == (x, y, direction)
    assert geometry.position(geometry.cell(x, y)) == (x, y)
    assert 0 <= geometry.state(x, y, direction) < SPEC.states.size


@pytest.mark.parametrize("spec", [SPEC, PlanSpec({"arm": FIELDS["arm"]}, ROBOT)])
def test_a_spec_survives_json(spec):
    again = PlanSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert (list(again.fields), list(again.streams)) == (list(spec.fields), list(spec.streams))
    assert again.actions.names == spec.actions.names


def test_a_spec_knows_its_parts():
    assert SPEC.scene_fields == ("grid", "mission")
    assert SPEC.step_fields == ("state", "carrying", "arm")
    assert (SPEC.state_field, SPEC.grid_field, SPEC.words_field, SPEC.num_goals) == ("state", "grid", "mission", 2)
    assert SPEC.mission({"mission": FIELDS["mission"].encode("go")}) == "go"
    bare = PlanSpec({"arm": FIELDS["arm"]}, ROBOT)
    assert (bare.states, bare.goals, bare.geometry, bare.words_field, bare.num_goals) == (None, None, None, None, 0)
    assert bare.mission({}) == ""


@pytest.mark.parametrize(
    "data", [{}, {"fields": {}}, {"fields": {"x": {"kind": "vector"}}, "actions": {"n": 2}}, {"fields": 3}]
)
def test_unreadable_specs_are_refused(data):
    with pytest.raises(UserError, match="a PlanSpec cannot be read"):
        PlanSpec.from_json(data)


@pytest.mark.parametrize(
    ("streams", "actions", "message"),
    [
        ({"plans": Stream(3)}, Actions(2), r"streams are \['plans'\], expected states, goals or both"),
        ({"goals": Stream(3), "states": Stream(3)}, Actions(2), "in this order"),
        ({"states": Stream(9, observed="state")}, Actions(2), "observed as 'state', expected a category field"),
        ({"states": Stream(9, observed="pose")}, Actions(2), "with 9 values, found None"),
        ({"states": Stream(280, points_at="mission")}, Actions(2), "points at 'mission', expected a grid field"),
        ({"goals": Stream(71, points_at="grid")}, Actions(2), "has 71 tokens, expected 70: one per cell"),
        ({}, Actions(low=(0, 0), high=(1, 1), origin=("arm", 3)), "expected part of a vector field"),
        ({}, Actions(low=(0,), high=(1,), origin=("grid", 0)), "expected part of a vector field"),
    ],
)
def test_wrong_specs_are_not_born(streams, actions, message):
    with pytest.raises(ValueError, match=message):
        PlanSpec(FIELDS, actions, streams)


def test_empty_specs_and_streams_are_not_born():
    with pytest.raises(ValueError, match="0 fields, expected at least 1"):
        PlanSpec({}, Actions(2))
    with pytest.raises(ValueError, match="a stream has 1 tokens, expected at least 2"):
        Stream(1)
