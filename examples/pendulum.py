"""A vector is observed, actions are continuous, and the return counts: Pendulum, with a hand-written swing-up.

genplan demos examples/pendulum.py:task --episodes 300
"""

import numpy as np

from genplan.tasks import task_from_gym
from genplan.tasks.experts import ExpertPlanner

MAX_TORQUE = 2.0
NEAR_TOP = 0.6  # radians from upright at which balancing takes over
UPRIGHT_ENERGY = 15.0  # 3 g / (2 l): energy per moment of inertia of a pendulum at rest upright


def make_policy(env):
    """An expert: bring the energy to that of the upright pendulum, then balance with a PD controller."""

    def act(last_action):
        angle, speed = env.unwrapped.state
        angle = (angle + np.pi) % (2 * np.pi) - np.pi
        energy = speed**2 / 2 + UPRIGHT_ENERGY * np.cos(angle)
        if abs(angle) < NEAR_TOP:
            torque = -8.0 * angle - 2.0 * speed
        else:
            torque = 0.2 * (UPRIGHT_ENERGY - energy) * (speed if speed else 1.0)
        return np.array([np.clip(torque, -MAX_TORQUE, MAX_TORQUE)], np.float32)

    return act


task = task_from_gym("Pendulum-v1", name="Pendulum", expert=lambda: ExpertPlanner(make_policy))
