import numpy as np
import pytest

from genplan.envs import make_env
from genplan.envs.bot import bot_policy
from genplan.envs.layouts import FixedLayout, layout_text
from genplan.envs.wrappers import SlipperyActions
from genplan.errors import ExpertFailure, LayoutError, UserError

ROOM = """
    ############
    ##>>..##..##
    ##..AR##KY##
    ##....LB..##
    ##KB..##..##
    ############
"""


def solve(env, limit=100):
    env.reset(seed=0)
    act, last = bot_policy(env), None
    for step in range(limit):
        last = act(last)
        _, _, terminated, *_ = env.step(last)
        if terminated:
            return step + 1
    return None


@pytest.mark.parametrize(
    "mission",
    ["go to the red ball", "go to the yellow key", "open the blue door", "pick up a key",
     "go to the red ball and go to the yellow key", "open the blue door after you go to the red ball",
     "go to the red ball, then go to the blue key"],
)  # fmt: skip
def test_a_map_drawn_by_hand_is_solved_by_the_bot(mission):
    env = FixedLayout(ROOM, mission)
    assert solve(env)
    assert env.mission == mission
    first, _ = env.reset(seed=1)
    again, _ = env.reset(seed=2)
    assert np.array_equal(first["image"], again["image"])


def test_text_and_map_are_inverse():
    for name in ("MazeClose", "BlockUnlock", "KeyCorridorS3R3", "MazeS7G1"):
        env = make_env(name)
        observation, _ = env.reset(seed=10_000)
        text = layout_text(observation["image"], observation["pose"])
        copy, _ = FixedLayout(text, observation["mission"]).reset()
        assert np.array_equal(copy["image"], observation["image"])
        assert np.array_equal(copy["pose"], observation["pose"])


@pytest.mark.parametrize(
    ("text", "mission", "message"),
    [
        (ROOM.replace("KB", ".."), "go to the yellow key", r"the yellow key at \(4, 2\) is out of reach"),
        (ROOM.replace("KB", ".."), "open the blue door", "the blue door is locked, and no key of its color"),
        (ROOM, "go to the green box", "names a green box, but the map has 0 of them; expected at least 1"),
        (ROOM.replace("LB", "##"), "go to the yellow key", "out of reach of the agent"),
        (ROOM.replace(">>", ".."), "go to the red ball", "0 agents, expected 1"),
        (ROOM.replace("KB", "<<"), "go to the red ball", "second agent"),
        (ROOM.replace("KB", "Q?"), "go to the red ball", r"has 'Q\?' at column 1, row 4"),
        (ROOM.replace("##>>", "..>>"), "go to the red ball", r"open at its edge at \(0, 1\)"),
        ("####\n##>>", "go to the red ball", "the map is 2 × 2 cells, expected 3 to 40"),
        ("", "go to the red ball", "the map is 0 × 0 cells"),
        (ROOM, "dance with the red ball", "is not understood; expected 'go to'"),
        (ROOM, "open the red ball", "expected doors to be opened"),
        (ROOM, "go to the red ball and go to the red ball and go to the red ball", "joins more parts"),
    ],
)
def test_maps_that_cannot_be_are_refused(text, mission, message):
    with pytest.raises(LayoutError, match=message):
        FixedLayout(text, mission)


def test_a_bot_without_a_way_gives_up():
    class KeyBehindTheDoor(FixedLayout):
        def _gen_grid(self, width, height):
            super()._gen_grid(width, height)
            self.grid.set(4, 4, self.grid.get(1, 4))
            self.grid.set(1, 4, None)

    with pytest.raises(ExpertFailure, match="the bot does not know how to go on"):  # left alone, it never ends
        solve(KeyBehindTheDoor(ROOM, "open the blue door"))
    env = make_env("MazeS4G1")
    with pytest.raises(UserError, match="the bot understands BabyAI's levels, found MazeEnv"):
        bot_policy(env)  # not reset: it has no instruction yet


def test_slips_follow_their_probability_and_their_seed():
    """20,000 steps: the share of slips is within 0.01 of 0.2 (3.5 standard errors, odds 5e-4), the others even."""
    env = SlipperyActions(make_env("MazeS4G1", max_steps=30_000))
    env.reset(seed=5)
    executed = np.array([env.step(4)[-1]["executed"] for _ in range(20_000)])
    slipped = executed[executed != 4]
    assert abs(len(slipped) / 20_000 - 0.2) < 0.01
    counts = np.bincount(slipped, minlength=6)
    assert counts[4] == 0
    expected = len(slipped) / 5
    assert ((counts[[0, 1, 2, 3, 5]] - expected) ** 2 / expected).sum() < 23.5  # four degrees of freedom: odds 1e-4
    env.reset(seed=5)
    assert executed[:100].tolist() == [env.step(4)[-1]["executed"] for _ in range(100)]
    with pytest.raises(ValueError, match=r"is 1\.5, expected 0 to 1"):
        SlipperyActions(make_env("MazeS4G1"), probability=1.5)
