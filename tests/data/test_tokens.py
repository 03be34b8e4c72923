import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genplan import tasks
from genplan.data.tokens import BABYAI_WORDS, PlanSpec
from genplan.errors import DataError
from genplan.tasks.table import WORLDS

SPEC = PlanSpec.grid(10, 7)


@given(st.integers(0, 9), st.integers(0, 6), st.integers(0, 3))
def test_states_and_cells_decode_to_what_was_encoded(x, y, heading):
    assert SPEC.pose(SPEC.state(x, y, heading)) == (x, y, heading)
    assert SPEC.position(SPEC.cell(x, y)) == (x, y)
    assert 0 <= SPEC.state(x, y, heading) < SPEC.num_states


def test_every_mission_of_every_world_is_in_the_vocabulary():
    for name in WORLDS:
        env = tasks.make_world(name)
        for seed in range(20_000, 20_030):
            observation, _ = env.reset(seed=seed)
            assert SPEC.decode_mission(observation["mission_tokens"]) == observation["mission"]
    assert len(BABYAI_WORDS) == len(set(BABYAI_WORDS))


def test_a_spec_survives_json():
    again = PlanSpec.from_json(json.loads(json.dumps(SPEC.to_json())))
    assert again == SPEC
    assert again.sizes == {"states": 280, "goals": 70, "actions": 6}
    assert again.shapes(5) == {"states": (5,), "goals": (5, 1), "actions": (5,)}
    assert PlanSpec(4, 16).sizes == {"states": 16, "actions": 4}


def test_bad_words_are_told_the_nearest():
    with pytest.raises(DataError, match="unknown word 'bal'; did you mean 'ball'"):
        SPEC.encode_mission("go to the bal")
    with pytest.raises(DataError, match="unknown word 'xyzzy'; known are"):
        SPEC.encode_mission("xyzzy")
    with pytest.raises(DataError, match="33 words, expected at most 32"):
        SPEC.encode_mission("go " * 33)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_actions": 1}, "num_actions is 1, expected at least 2"),
        ({"num_goals": 1}, "goal_size is 0, expected at least 2 for 1 goals"),
        ({"map_shape": (3, 3), "map_channels": (4,)}, "num_states is 10, expected 9: 9 cells × 1 headings"),
        ({"map_shape": (5, 2)}, "0 channels, expected at least 1"),
        ({"words": ("<pad>", "go")}, "max_words is 0, expected at least 1"),
        ({"mirrored_actions": (0, 0, 1, 2)}, "expected an order of 0 to 3"),
    ],
)
def test_wrong_specs_are_not_born(wrong, message):
    with pytest.raises(ValueError, match=message):
        PlanSpec(**{"num_actions": 4, "num_states": 10, **wrong})
