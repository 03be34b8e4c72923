"""Demonstrations of the bot in memory, and step models that learnt from them; each made once."""

import functools
from unittest import mock

import torch

from genplan import tasks
from genplan.collect import collect_episode
from genplan.data.transforms import transform_from_json
from genplan.data.windows import Windows
from genplan.models.step import make_step_model, number
from genplan.planners import step_training
from genplan.tasks.grid import COLOR_PERMUTATION, SYMMETRY
from genplan.types import WindowNeeds

FIRST_SEED, NUM_EPISODES, NUM_HELD_OUT = 10_000, 60, 10
RECIPE = (SYMMETRY, COLOR_PERMUTATION)


@functools.cache
def demonstrations(name):
    task = tasks.get(name)
    env, expert = task.make_env(), task.expert()
    seeds = range(FIRST_SEED, FIRST_SEED + NUM_EPISODES + NUM_HELD_OUT)
    return [collect_episode(expert, task, env, seed) for seed in seeds]


def fit(model, spec, episodes, held_out, transforms=(), steps=300):
    """In fewer and smaller steps than it takes to learn a thousand episodes; the windows held out."""
    parts = Windows(spec, episodes, WindowNeeds(5), 0.0, transforms), Windows(spec, held_out, WindowNeeds(5))
    with mock.patch.object(step_training, "BATCH", 256):
        step_training.fit_step_model(model, *parts, steps)
    return parts[1]


@functools.cache
def learnt(name):
    """A step model, and windows of episodes that it did not learn from."""
    spec, episodes = tasks.get(name).spec, demonstrations(name)
    torch.manual_seed(0)
    model = make_step_model(spec)
    transforms = [transform_from_json(one) for one in RECIPE]
    return model, fit(model, spec, episodes[:NUM_EPISODES], episodes[NUM_EPISODES:], transforms)


def key_of(model, look, carried=(1, 0)):
    return int(number([torch.tensor(value) for value in (*look, *carried)], model.sizes))
