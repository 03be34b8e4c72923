"""An episode that was played on the page as a moving picture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from PIL import Image

from genplan.film import ACTIONS, gif, overlay, picture, strip
from genplan.serve import schema
from genplan.tasks.grid import observe
from genplan.tasks.layouts import thing
from genplan.tasks.task import Task

MOST_FRAMES = 300


def film_of(task: Task, episode: schema.EpisodeAnswer) -> bytes:
    """The steps are played again in the simulator's own drawing, with the plan of the moment over it.

    Of a long episode, every second step, or every third, and so on.
    """
    every = -(-len(episode.steps) // MOST_FRAMES) or 1
    return gif(_frames(task, episode, every))


def _frames(task: Task, episode: schema.EpisodeAnswer, every: int) -> Iterator[Image.Image]:
    env = task.new_env()
    image = np.array(observe(env, env.reset(seed=0)[0])["map"])
    pose = episode.start
    for number, step in enumerate(episode.steps):
        if number % every == 0:
            plan = episode.plans[step.plan]
            states = [task.spec.state(*pose), *(task.spec.state(*place) for place in plan.path[1:])]
            goals = [task.spec.cell(*place) for place in plan.goals]
            frame = overlay(picture(image, pose), task.spec, states, goals)
            words = [ACTIONS[action] for action in plan.actions[:10]]
            yield strip(frame, words, [True] * len(words), f"step {number}")
        pose = step.pose
        for change in step.changes:
            image[change.place] = _encoded(change.code)
    verdict = "done" if episode.success else "not done"
    yield strip(picture(image, pose), [], [], f"{verdict} after {len(episode.steps)} steps")


def _encoded(code: str) -> tuple[int, int, int]:
    found = thing(code)
    return (1, 0, 0) if found is None else found.encode()
