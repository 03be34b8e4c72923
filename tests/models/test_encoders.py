"""Encoders: one per kind of field; what they need of the data is saved with them."""

import numpy as np
import pytest
import torch

from genplan.models.encoders import ENCODERS, ActionEmbedding, SceneEncoder, StepEncoder, fit_statistics
from genplan.models.settings import EncoderConfig
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Observations
from tests.data.worlds import episode
from tests.samples import sample_field

FIELDS = {
    "grid": Field("grid", (4, 3), (5, 2)),
    "words": Field("words", (6,), vocabulary=("<pad>", "go", "left", "right")),
    "category": Field("category", (2,), (3, 4)),
    "vector": Field("vector", (3,)),
}
CONFIG = EncoderConfig(hidden_size=8, num_heads=2, encoder_iterations=2)
SPEC = PlanSpec(FIELDS, Actions(2))


def sample(name, number, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([sample_field(FIELDS[name], rng) for _ in range(number)]))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_every_kind_has_an_encoder():
    assert set(ENCODERS) == set(FIELDS)


def test_scenes_are_encoded_row_by_row():
    encoder = SceneEncoder(SPEC, CONFIG).eval()
    scene = Observations({name: sample(name, 5) for name in SPEC.scene_fields})
    encoding = encoder(scene, 5)
    assert encoding.condition.shape == (5, 8)
    assert encoding.grids["grid"].shape == (5, 12, 8)
    alone = encoder(scene[torch.tensor([3])], 1)
    assert torch.allclose(alone.condition[0], encoding.condition[3], atol=1e-6)
    assert torch.allclose(alone.grids["grid"][0], encoding.grids["grid"][3], atol=1e-5)


def test_words_decide_how_a_grid_is_read_and_padding_does_not():
    encoder = SceneEncoder(SPEC, CONFIG).eval()
    grid = sample("grid", 1).expand(3, -1, -1, -1)
    words = torch.tensor([[1, 2, 0, 0, 0, 0], [1, 3, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0]])
    encoding = encoder(Observations({"grid": grid, "words": words}), 3)
    assert not torch.allclose(encoding.grids["grid"][0], encoding.grids["grid"][1], atol=1e-4)
    assert torch.allclose(encoding.grids["grid"][0], encoding.grids["grid"][2], atol=1e-6)
    longer = torch.cat([words[:1], words[:1]])
    longer[1, 2:] = torch.tensor([1, 1, 1, 1])  # a long sentence beside it changes nothing
    beside = encoder(Observations({"grid": grid[:2], "words": longer}), 2)
    assert torch.allclose(beside.condition[0], encoding.condition[0], atol=1e-6)


def test_a_task_without_scene_fields_has_a_learnt_constant():
    encoder = SceneEncoder(PlanSpec({"vector": FIELDS["vector"]}, Actions(2)), CONFIG)
    encoding = encoder(Observations({}), 3)
    assert torch.equal(encoding.condition, encoder.null_embedding.expand(3, -1))
    assert encoding.grids == {}


def test_a_grid_that_no_state_points_at_is_part_of_the_condition():
    """Methods that read single cells would not see it otherwise."""
    encoder = SceneEncoder(PlanSpec({"grid": FIELDS["grid"]}, Actions(2)), CONFIG).eval()
    one, other = (encoder(Observations({"grid": sample("grid", 1, seed)}), 1) for seed in (0, 1))
    assert not torch.allclose(one.condition, other.condition, atol=1e-4)
    assert torch.equal(one.condition, encoder.null_embedding + one.grids["grid"].mean(1))


def test_steps_are_the_sum_of_their_fields():
    encoder = StepEncoder(SPEC, SPEC.step_fields, CONFIG)
    steps = Observations({name: sample(name, 4) for name in SPEC.step_fields})
    base = torch.randn(4, 8)
    together = encoder(steps, base)
    apart = sum(one(steps[name], torch.zeros(4, 8)) for name, one in encoder.encoders.items())
    assert torch.allclose(together, base + apart, atol=1e-6)
    past = Observations({name: torch.stack([part, part], 1) for name, part in steps.fields.items()})
    assert torch.allclose(encoder(past, base[:, None].expand(-1, 2, -1))[:, 1], together, atol=1e-6)


def test_vectors_are_scaled_by_the_demonstrations_and_statistics_are_saved():
    values = torch.tensor([[1.0, 100.0, 7.0], [3.0, 300.0, 7.0]])
    shown = episode({"vector": values.numpy()}, [0])
    encoder = StepEncoder(PlanSpec({"vector": FIELDS["vector"]}, Actions(2)), ["vector"], CONFIG)
    fit_statistics(encoder, [shown])
    vector = encoder.encoders["vector"]
    assert vector.mean.tolist() == [2.0, 200.0, 7.0]
    assert vector.std.tolist() == [1.0, 100.0, 1.0]  # the last never changes, and is left as it is
    assert {"encoders.vector.mean", "encoders.vector.std"} <= set(encoder.state_dict())
    other = StepEncoder(PlanSpec({"vector": FIELDS["vector"]}, Actions(2)), ["vector"], CONFIG)
    base, seen = torch.zeros(2, 8), Observations({"vector": values})
    assert not torch.allclose(other(seen, base), encoder(seen, base))
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(seen, base), encoder(seen, base))


def test_a_broken_sensor_does_not_drown_the_rest():
    encoder = StepEncoder(PlanSpec({"vector": FIELDS["vector"]}, Actions(2)), ["vector"], CONFIG)
    far = torch.tensor([[0.5, 1e9, 0.0], [0.5, 1e12, 0.0]])
    first, second = encoder(Observations({"vector": far}), torch.zeros(2, 8))
    assert torch.equal(first, second)


def test_executed_actions_are_embedded_and_none_yet_is_another_vector():
    for actions, done in ((Actions(3), torch.tensor([0, 2])), (Actions(low=(-1,), high=(3,)), torch.ones(2, 1))):
        embed = ActionEmbedding(actions, 8, num_extra=1)
        torch.nn.init.normal_(next(iter(embed.parameters())))
        with torch.no_grad():
            if actions.n is None:
                embed.none.fill_(5.0)
        valid = torch.tensor([True, False])
        shown = embed(done, valid)
        assert torch.equal(shown[0], embed(done)[0])
        assert not torch.equal(shown[1], embed(done)[1])
        assert torch.equal(shown[1], embed(done.flip(0), valid)[1])  # whatever stands there
