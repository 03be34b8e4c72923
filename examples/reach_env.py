"""A robot arm with two joints that brings its hand to a place: an environment as anybody would write it."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Reach(gymnasium.Env):
    """Observed are both joints, and where to go; an action turns the joints; the reward is how far away the hand is."""

    observation_space, action_space = Box(-4, 4, (4,), np.float32), Box(-0.15, 0.15, (2,), np.float32)

    def hand(self, joints):
        first, second = np.cumsum(joints)
        return np.array([np.cos(first) + np.cos(second), np.sin(first) + np.sin(second)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joints, self.goal = self.np_random.uniform((-1, 0.5), (1, 2.5), (2, 2))
        return np.float32([*self.joints, *self.hand(self.goal)]), {}

    def step(self, action):
        self.joints = self.joints + action
        distance = np.linalg.norm(self.hand(self.joints) - self.hand(self.goal))
        return np.float32([*self.joints, *self.hand(self.goal)]), -distance, False, False, {"distance": distance}
