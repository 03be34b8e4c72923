"""Training: the learning rate, averaged weights, settings that are refused, losses that are not finite."""

import copy

import pytest
import torch
from torch import nn

from genplan.errors import UserError
from genplan.presets import TrainConfig
from genplan.training import EMA, learning_rate_at


def test_the_learning_rate_warms_up_and_decays():
    config = TrainConfig(steps=100, warmup_steps=10, learning_rate=1.0)
    assert learning_rate_at(config, 0) == pytest.approx(0.1, rel=1e-2)
    assert learning_rate_at(config, 9) > learning_rate_at(config, 50) > learning_rate_at(config, 99)
    assert learning_rate_at(config, 99) < 1e-2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0, expected at least 1"),
        ({"batch_size": 10, "windows_per_scene": 4}, "batch_size is 10, expected a multiple of windows_per_scene, 4"),
        ({"ema_decay": 1}, "ema_decay is 1, expected 0 to below 1"),
        ({"weight_decay": -1}, "weight_decay is -1, expected at least 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        TrainConfig(**settings)


def test_averaged_weights_are_not_the_live_ones():
    module = nn.BatchNorm1d(3)  # its count of batches is a whole number
    ema = EMA(module, 0.9)
    before = copy.deepcopy(ema.tensors)
    with torch.no_grad():
        module.weight.fill_(3.0)
    module.num_batches_tracked.fill_(7)
    assert all(torch.equal(ema.tensors[name], tensor) for name, tensor in before.items())
    ema.update(module, step=10_000)
    assert torch.allclose(ema.tensors["weight"], torch.full((3,), 1.2))
    assert ema.tensors["num_batches_tracked"] == 7
    young = EMA(nn.BatchNorm1d(3), 0.9)
    young.update(module, step=0)
    assert torch.allclose(young.tensors["weight"], torch.full((3,), 2.8))  # young averages follow quickly
