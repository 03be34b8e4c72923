"""The order `chain`: a head draws states and actions jointly, and the sampler commits them near to far."""

import pytest
import torch

from genplan.flow import ProbPath, Rng, sample
from genplan.flow.orders import Proposal

LENGTH, STATES, ACTIONS = 5, 7, 3
PATH = ProbPath({"states": STATES, "actions": ACTIONS, "goals": 4})
SHAPES = {"states": (LENGTH,), "actions": (LENGTH,), "goals": (LENGTH, 2)}


class Walk:
    """Proposes the action `step + round` mod 3; a state is the one before plus the action before, mod 7."""

    streams = ("states", "actions")

    def __init__(self):
        self.calls = []

    def start(self, x_0, given, rng):
        self.tokens, self.given, self.proposals = dict(x_0), given, []

    def propose(self, log_p, known, due):
        self.calls.append((known, due, set(log_p)))
        actions, states = self.tokens["actions"].clone(), self.tokens["states"].clone()
        for step in range(known, LENGTH):
            free = ~self.given["actions"][..., step]
            actions[..., step][free] = (step + len(self.calls)) % ACTIONS
        for step in range(1, LENGTH):
            states[..., step] = (states[..., step - 1] + actions[..., step - 1]) % STATES
        tokens = {"actions": actions, "states": states}
        self.tokens |= tokens
        log_probs = {name: torch.full(x.shape, -0.1 * len(self.calls)) for name, x in tokens.items()}
        self.proposals.append(Proposal(tokens, log_probs))
        return self.proposals[-1]


def network(x_t, t):
    return {name: torch.zeros(*x.shape, PATH.sizes[name]) for name, x in x_t.items()}


def draw(batch=(2,), action=None, **options):
    """Of plans that begin in state 3, and with a given action."""
    rng, head = Rng.of(0, batch=batch), Walk()
    x_0 = PATH.noise(SHAPES, rng)
    x_0["states"][..., 0] = 3
    given = {"states": (torch.arange(LENGTH) == 0).expand_as(x_0["states"])}
    if action is not None:
        x_0["actions"][..., 2] = action
        given["actions"] = (torch.arange(LENGTH) == 2).expand_as(x_0["actions"])
    return head, sample(PATH, network, x_0, rng, order="chain", head=head, given=given, **options)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, [0.0, 0.2, 1.0]])
def test_plans_are_what_the_head_proposes_and_follow_from_what_was_known(batch, steps):
    head, result = draw(batch, steps=steps)
    number = steps if isinstance(steps, int) else len(steps) - 1
    known, due = zip(*((known, due) for known, due, _ in head.calls), strict=True)
    assert (len(known), known[0], due[-1]) == (number, 0, LENGTH)
    assert known[1:] == due[:-1]
    states, actions = result.tokens["states"], result.tokens["actions"]
    assert torch.equal(states[..., 1:], (states[..., :-1] + actions[..., :-1]) % STATES)
    for step in range(LENGTH):  # of the call at which a step became due
        call = next(number for number, end in enumerate(due) if step < end)
        assert (actions[..., step] == (step + call + 1) % ACTIONS).all()
        assert torch.allclose(result.log_probs["actions"][..., step], torch.tensor(-0.1 * (call + 1)))


def test_what_is_given_stays():
    _, result = draw(action=2, steps=5)
    assert (result.tokens["actions"][:, 2] == 2).all()
    assert (result.tokens["states"][:, 0] == 3).all()
    assert (result.log_probs["actions"][:, 2] == 0).all()
    assert (result.log_probs["states"][:, 0] == 0).all()
    assert (result.log_probs["states"][:, 1:] < 0).all()


def test_other_streams_go_near_to_far_and_finished_ones_are_not_predicted_again():
    _, result = draw(steps=5, keep_trace=True)
    masked = result.trace.tokens["goals"][:, 0, :, 0] == PATH.mask_token("goals")
    assert masked.sum(1).tolist() == [5, 4, 3, 2, 1, 0]
    head, result = draw(steps=5, first_streams=["goals"])
    assert [streams for _, _, streams in head.calls] == [set(SHAPES), *[{"states", "actions"}] * 4]
    assert (result.tokens["goals"] < 4).all()


def test_a_trace_shows_what_was_proposed():
    head, result = draw(steps=5, first_streams=["goals"], keep_trace=True)
    trace = result.trace
    for name in ("states", "actions"):
        assert torch.equal(trace.predicted[name], torch.stack([one.tokens[name] for one in head.proposals]))
        proposed = torch.stack([one.log_probs[name] for one in head.proposals])
        assert torch.allclose(trace.confidence[name], proposed.exp())
        committed = (trace.tokens[name][:, 0] != PATH.mask_token(name)).sum(1).tolist()
        assert committed == ([1, 2, 3, 4, 5, 5] if name == "states" else [0, 1, 2, 3, 4, 5])
    assert torch.allclose(trace.confidence["goals"], torch.tensor(0.25))
    one = trace.rows(torch.tensor([1]))
    for parts, whole in ((one.tokens, trace.tokens), (one.predicted, trace.predicted)):
        assert all(torch.equal(parts[name], whole[name][:, 1:]) for name in SHAPES)
    assert torch.equal(one.confidence["goals"], trace.confidence["goals"][:, 1:])
    assert torch.equal(one.energy, trace.energy[:, 1:])


def test_a_head_goes_with_a_chain_and_nothing_is_drawn_again():
    rng = Rng.of(0, batch=(2,))
    x_0 = PATH.noise(SHAPES, rng)
    with pytest.raises(ValueError, match="the order is 'chain' with head=None, expected a head"):
        sample(PATH, network, x_0, rng, order="chain")
    with pytest.raises(ValueError, match=r"the order is 'near-to-far' with head=.*, expected a head with 'chain'"):
        sample(PATH, network, x_0, rng, order="near-to-far", head=Walk())
    with pytest.raises(ValueError, match=r"eta is 0.5, expected 0: a chain"):
        draw(eta=0.5)
    with pytest.raises(ValueError, match="first_streams names"):
        draw(first_streams=["words"])
