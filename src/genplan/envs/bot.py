"""BabyAI's bot as an expert for one episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from minigrid.utils.baby_ai_bot import BabyAIBot

from genplan.errors import ExpertFailure, UserError


class _BoundedStack(list[Any]):
    """The bot's sub-goals. On unusual maps one follows another for ever; here they come to an end."""

    MAX_PUSHES = 100  # between two actions; in BabyAI's levels there are fewer than ten
    num_pushes = 0

    def append(self, subgoal: Any) -> None:
        self.num_pushes += 1
        if self.num_pushes > self.MAX_PUSHES:
            raise RecursionError(f"{self.MAX_PUSHES} sub-goals and no action")
        super().append(subgoal)


def bot_policy(env: gymnasium.Env[Any, Any], full_view: bool = False) -> Callable[[int | None], int]:
    """The bot in an episode that has just begun: the action taken last (None at the start) -> the next action.

    It explores with its 7×7 view, so its paths are longer than they need be where everything is observed. With
    `full_view` it sees the whole grid from the start: shortest paths, where all doors are open.
    """
    if not hasattr(env.unwrapped, "instrs"):
        raise UserError(
            f"the bot understands BabyAI's levels, found {type(env.unwrapped).__name__}; give your own expert"
        )
    bot = BabyAIBot(env)
    bot.stack = subgoals = _BoundedStack(bot.stack)
    if full_view:
        bot.vis_mask[:] = True

    def act(last: int | None) -> int:
        subgoals.num_pushes = 0
        try:
            action = int(bot.replan(last))
        except Exception as error:  # it gives up in many ways
            raise ExpertFailure(f"the bot does not know how to go on here ({type(error).__name__})") from error
        return action if action < env.action_space.n else 0  # type: ignore[attr-defined]  # `done` is no action here

    return act
