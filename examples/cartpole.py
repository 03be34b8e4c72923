"""A vector is observed, actions are discrete, and the return counts: CartPole, with a hand-written controller.

genplan demos examples/cartpole.py:task --episodes 200
"""

from genplan.tasks import task_from_gym
from genplan.tasks.experts import ExpertPlanner

GAINS = (0.1, 0.4, 3.0, 1.0)  # of cart position, cart velocity, pole angle, pole angular velocity


def make_policy(env):
    """An expert: push to the side given by the sign of a linear feedback of the state."""

    def act(last_action):
        return int(sum(gain * number for gain, number in zip(GAINS, env.unwrapped.state, strict=True)) > 0)

    return act


task = task_from_gym("CartPole-v1", name="CartPole", expert=lambda: ExpertPlanner(make_policy))
