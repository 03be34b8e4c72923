"""Adaptation: what is observed in an episode comes before what was learnt, for all colors at once."""

from types import SimpleNamespace

import pytest
import torch

from genplan.envs.babyai import babyai_spec
from genplan.flow import Rng
from genplan.models.step import ADVANCE, STAY, GridStepModel, StepTable, number
from genplan.planners.adaptation import DEMONSTRATED, Adaptation, Observed
from genplan.planners.chain import Chain, ChainConfig
from genplan.types import Observations

from ..demonstrated import key_of

SPEC = babyai_spec(6, 1)
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
FLOOR, WALL, OPEN, CLOSED, LOCKED = (1, 0, 0), (2, 5, 0), (4, 2, 0), (4, 2, 1), (4, 2, 2)
NOTHING, KEY = (1, 0), (5, 2)
ROW, LENGTH = torch.tensor([0]), 4
COLORS = range(6)


class Believing(GridStepModel):
    """Knows turns, and walls; believes that one can walk into anything else, and that nothing else does anything."""

    def make_table(self):
        keys = torch.cartesian_prod(*(torch.arange(size) for size in self.sizes))
        look, carried = (number(part.unbind(1), sizes) for part, sizes in (
            (keys[:, :3], self.look_sizes), (keys[:, 3:], self.carried_sizes)))  # fmt: skip
        outcome = torch.tensor([STAY + 3, STAY + 1, ADVANCE, STAY, STAY, STAY]).repeat(len(keys), 1)
        log_action = torch.tensor([0.2, 0.2, 0.58, 0.004, 0.004, 0.004]).log().repeat(len(keys), 1)
        log_action[keys[:, 0] == 2] = torch.tensor([0.49, 0.49, 1e-6, 0.004, 0.004, 0.004]).log()
        kept = (part[:, None].expand(-1, 6) for part in (look, carried))
        return StepTable(log_action - self.log_prior, torch.zeros(*outcome.shape, 1), outcome[..., None], *kept)


def make(colors=True):
    torch.manual_seed(0)
    model = Believing(SPEC)
    model.log_prior.copy_(torch.tensor([0.2, 0.2, 0.58, 0.004, 0.004, 0.004]).log())
    model.exchangeable.copy_(torch.tensor([False, colors, False, False, colors]))
    for look, actions in ((FLOOR, (LEFT, RIGHT, FORWARD)), (WALL, (LEFT, RIGHT))):
        model.demonstrated[key_of(model, look), list(actions)] = 50
    return model


def observed(x, *cells, carrying=NOTHING):
    """An agent at x, that faces right, in a corridor of six cells."""
    corridor = [*cells, *[FLOOR] * (6 - len(cells))]
    return Observations({
        "state": torch.tensor([SPEC.geometry.state(x, 0, 0)]),
        "grid": torch.tensor(corridor, dtype=torch.uint8).reshape(1, 6, 1, 3),
        "mission": torch.zeros(1, SPEC.fields["mission"].shape[0], dtype=torch.int64),
        "carrying": torch.tensor([carrying]),
    })  # fmt: skip


def colored(look, color):
    return (look[0], color, look[2])


def after(*steps, model=None):
    """An adaptation after steps (action, observed before it, observed after it)."""
    adaptation = Adaptation(SPEC, model or make(), 1)
    for action, before, then in steps:
        adaptation.update(ROW, before, torch.tensor([action]), then)
    return adaptation


def beliefs(adaptation, look, carrying=NOTHING):
    model = adaptation.model
    key = torch.tensor([[key_of(model, look, carrying)]])
    unknown, found = adaptation.beliefs(ROW, key)
    nothing = torch.zeros(1, 1, 6, dtype=torch.bool)
    found = found or Observed(nothing.long() - 1, nothing, nothing, nothing[..., 0])
    return SimpleNamespace(unknown=unknown[0, 0], **{name: one[0, 0] for name, one in found._asdict().items()})


def planned(adaptation, now, visits=0):
    """The likeliest actions and states, for a denoiser that would walk on."""
    counts = torch.zeros(1, 24)
    counts[0, now["state"]] = visits
    head = Chain(SPEC, adaptation.model, ChainConfig(), 0.0, now, adaptation, ROW, counts)
    x_0 = {"actions": torch.full((1, LENGTH), 6), "states": torch.full((1, LENGTH), 24)}
    x_0["states"][:, 0] = now["state"]
    given = {"actions": torch.zeros(1, LENGTH, dtype=torch.bool), "states": (torch.arange(LENGTH) == 0)[None]}
    head.start(x_0, given, Rng.of(0, ROW))
    log_p = {"actions": torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 0.0]).log_softmax(0).repeat(1, LENGTH, 1),
             "states": torch.zeros(1, LENGTH, 24).log_softmax(-1)}  # fmt: skip
    tokens = head.propose(log_p, 0, LENGTH).tokens
    return tokens["actions"][0].tolist(), (tokens["states"][0] // 4).tolist()


BUMP = (FORWARD, observed(0, FLOOR, CLOSED), observed(0, FLOOR, CLOSED))
OPENED = (TOGGLE, observed(0, FLOOR, CLOSED), observed(0, FLOOR, OPEN))


def test_one_bump_is_enough_for_doors_of_every_color():
    assert planned(after(), observed(0, FLOOR, CLOSED))[0] == [FORWARD] * LENGTH
    adaptation = after(BUMP)
    for color in COLORS:
        belief = beliefs(adaptation, colored(CLOSED, color))
        assert belief.idle.tolist() == [action == FORWARD for action in range(6)]
        assert belief.contradicted
        assert not belief.prepares.any()
        assert planned(adaptation, observed(0, FLOOR, colored(CLOSED, color)))[0][0] != FORWARD
    for other in (FLOOR, WALL, OPEN, LOCKED):
        belief = beliefs(adaptation, other)
        assert not belief.idle.any()
        assert not belief.contradicted


def test_without_names_every_color_is_another_matter():
    adaptation = after(BUMP, model=make(colors=False))
    assert [bool(beliefs(adaptation, colored(CLOSED, color)).idle[FORWARD]) for color in COLORS] == [
        color == CLOSED[1] for color in COLORS
    ]


def test_what_opened_a_door_is_planned_before_every_closed_one():
    adaptation = after(BUMP, OPENED)
    for color in COLORS:
        door = colored(CLOSED, color)
        assert beliefs(adaptation, door).prepares.tolist() == [action == TOGGLE for action in range(6)]
        actions, cells = planned(adaptation, observed(0, FLOOR, door))
        assert actions[:2] == [TOGGLE, FORWARD]
        assert cells[:3] == [0, 0, 1]
        assert planned(adaptation, observed(0, FLOOR, FLOOR, door))[0][:3] == [FORWARD, TOGGLE, FORWARD]
    assert planned(adaptation, observed(0, FLOOR, OPEN))[0] == [FORWARD] * LENGTH


def test_what_is_unknown_is_tried_where_nothing_else_helps():
    belief = beliefs(after(BUMP), CLOSED)
    assert belief.unknown.tolist() == [False, False, False, True, True, True]
    failed = [(action, observed(0, FLOOR, CLOSED), observed(0, FLOOR, CLOSED)) for action in (PICKUP, DROP)]
    actions, cells = planned(after(BUMP, *failed), observed(0, FLOOR, CLOSED))
    assert actions[:2] == [TOGGLE, FORWARD]  # it is planned as if it helped
    assert cells[:3] == [0, 0, 1]
    assert not beliefs(after(BUMP), FLOOR).unknown[[LEFT, RIGHT, FORWARD]].any()


@pytest.mark.parametrize("times", [1, DEMONSTRATED - 1, DEMONSTRATED])
def test_what_was_demonstrated_gives_way_after_nine_contrary_observations(times):
    slip = (FORWARD, observed(0, FLOOR, FLOOR), observed(0, FLOOR, FLOOR))
    belief = beliefs(after(*[slip] * times), FLOOR)
    assert DEMONSTRATED == 9
    assert bool(belief.idle[FORWARD]) == (times >= 9)
    assert bool(belief.contradicted) == (times >= 9)
    assert (int(belief.effect[FORWARD]) >= 0) == (times >= 9)


def test_confirmations_hold_against_slips():
    came = (FORWARD, observed(0, FLOOR, OPEN), observed(1, FLOOR, OPEN))
    slip = (FORWARD, observed(0, FLOOR, OPEN), observed(0, FLOOR, OPEN))
    assert beliefs(after(slip), OPEN).idle[FORWARD]
    assert not beliefs(after(came, slip), OPEN).idle[FORWARD]
    assert beliefs(after(came, slip, slip), OPEN).idle[FORWARD]
    assert not beliefs(after(came, slip, slip, came), OPEN).idle[FORWARD]
    assert not beliefs(after(came, came, came, slip, slip), OPEN).contradicted


def test_equal_names_are_told_apart_from_unequal_ones():
    """A key opens the locked door of its own color, whichever it is, and no other."""
    unlocked = (TOGGLE, observed(0, FLOOR, LOCKED, carrying=KEY), observed(0, FLOOR, OPEN, carrying=KEY))
    other = (5, 3)
    stuck = (TOGGLE, observed(0, FLOOR, LOCKED, carrying=other), observed(0, FLOOR, LOCKED, carrying=other))
    adaptation = after(unlocked)
    for door in COLORS:
        for key in COLORS:
            belief = beliefs(adaptation, colored(LOCKED, door), (KEY[0], key))
            assert bool(belief.prepares[TOGGLE]) == (door == key)
    assert not beliefs(adaptation, LOCKED).prepares.any()  # with nothing in hand
    both = after(unlocked, stuck)
    assert int(both.confirmed.sum()) == 1  # as the table says: nothing comes of it
    assert [bool(beliefs(both, LOCKED, (5, color)).prepares[TOGGLE]) for color in COLORS] == [
        color == LOCKED[1] for color in COLORS
    ]


def test_what_becomes_of_the_look_and_of_what_is_carried_holds_for_other_colors():
    picked = (PICKUP, observed(0, FLOOR, (5, 2, 0)), observed(0, FLOOR, FLOOR, carrying=(5, 2)))
    adaptation = after(picked)
    effects = adaptation.effects
    for color in (1, 3, 4, 5):
        belief = beliefs(adaptation, (5, color, 0))
        assert belief.prepares[PICKUP]
        which, key = int(belief.effect[PICKUP]), key_of(adaptation.model, (5, color, 0))
        assert int(effects.look[which, key]) == int(number([torch.tensor(v) for v in FLOOR], (11, 6, 3)))
        assert int(effects.carried[which, key]) == 5 * 6 + color  # the key that lay there


def test_rows_do_not_meet_and_nothing_outlives_an_episode():
    adaptation = Adaptation(SPEC, make(), 2)
    action, before, then = BUMP
    adaptation.update(torch.tensor([1]), before, torch.tensor([action]), then)
    key = torch.tensor([[key_of(adaptation.model, CLOSED)]])
    first, second = (adaptation.beliefs(torch.tensor([row]), key).observed.idle for row in (0, 1))
    assert not first.any()
    assert second[0, 0, FORWARD]
    assert not beliefs(Adaptation(SPEC, adaptation.model, 1), CLOSED).idle.any()
