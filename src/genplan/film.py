"""Moving pictures: a plan taking shape, and an episode being played (animated GIF)."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from genplan.data.tokens import PlanSpec
from genplan.errors import UserError

if TYPE_CHECKING:
    from genplan.flow import Trace
    from genplan.pilot import Pilot

TILE, STRIP = 28, 30
ACTIONS = ("left", "right", "fwd", "pick", "drop", "tog")
PATH, STAR, PALE = (64, 190, 255), (255, 200, 40), (110, 110, 110)


def picture(image: NDArray[np.uint8], pose: Sequence[int]) -> Image.Image:
    """A map with the agent on it, as MiniGrid draws it."""
    from minigrid.core.grid import Grid

    grid, _ = Grid.decode(np.asarray(image))
    return Image.fromarray(grid.render(TILE, (int(pose[0]), int(pose[1])), int(pose[2])))


def overlay(
    frame: Image.Image, spec: PlanSpec, states: Sequence[int], goals: Sequence[int] = (), sure: Sequence[float] = ()
) -> Image.Image:
    """A path through the cells of `states`, bolder where the planner is surer, and stars on `goals`."""
    frame = frame.copy()
    draw = ImageDraw.Draw(frame)
    centre = [((x + 0.5) * TILE, (y + 0.5) * TILE) for x, y, _ in (spec.pose(int(state)) for state in states)]
    for step in range(1, len(centre)):
        if centre[step] != centre[step - 1]:
            draw.line(
                [centre[step - 1], centre[step]], fill=PATH, width=1 + round(4 * (sure[step] if len(sure) else 1))
            )
    for x, y in centre[1:]:
        draw.ellipse([x - 3, y - 3, x + 3, y + 3], fill=PATH)
    for goal in goals:
        x, y = spec.position(int(goal))
        star(draw, (x + 0.5) * TILE, (y + 0.5) * TILE)
    return frame


def star(draw: ImageDraw.ImageDraw, x: float, y: float, size: float = 9) -> None:
    corners = [(np.pi * k / 5 - np.pi / 2, size if k % 2 == 0 else size * 0.4) for k in range(10)]
    draw.polygon([(x + r * np.cos(a), y + r * np.sin(a)) for a, r in corners], outline=STAR, fill=None, width=2)


def strip(frame: Image.Image, words: Sequence[str], bright: Sequence[bool], caption: str) -> Image.Image:
    """The picture with a line of tokens and a caption under it."""
    tall = Image.new("RGB", (frame.width, frame.height + STRIP), (20, 20, 24))
    tall.paste(frame)
    draw = ImageDraw.Draw(tall)
    draw.text((4, frame.height + 2), caption, fill=(230, 230, 230))
    width = (frame.width - 8) / max(len(words), 1)
    for place, (word, lit) in enumerate(zip(words, bright, strict=True)):
        draw.text((4 + place * width, frame.height + 15), word, fill=(255, 255, 255) if lit else PALE)
    return tall


def denoising(
    spec: PlanSpec, image: NDArray[np.uint8], state: int, trace: Trace, caption: str = "", row: int = 0
) -> list[Image.Image]:
    """One frame per network call: what is settled, and the path and goal that the network expects so far."""
    base = picture(image, spec.pose(state))
    frames = []
    calls = len(trace.t) - 1
    for call in range(calls + 1):
        last = min(call, calls - 1)
        tokens = trace.tokens["actions"][call, row].tolist()
        settled = [token < spec.num_actions for token in tokens]
        states = (
            trace.predicted["states"][last, row].tolist()
            if call < calls
            else trace.tokens["states"][call, row].tolist()
        )
        states[0] = state
        goals = trace.predicted["goals"][last, row, 0].tolist() if "goals" in trace.predicted else []
        sure = trace.confidence["states"][last, row].tolist()
        words = [ACTIONS[token] if done else "·" for token, done in zip(tokens, settled, strict=True)]
        told = f"t = {float(trace.t[call]):.2f}   energy {float(trace.energy[last, row]):.2f}   {caption}"
        frames.append(strip(overlay(base, spec, states, goals, sure), words, settled, told))
    return frames


def episode(
    pilot: Pilot, seed: int, execute: int | None = None, limit: int | None = None
) -> tuple[list[Image.Image], str]:
    """An episode as `genplan eval` plays it, with its plans drawn in; and what came of it, in words."""
    task, spec = pilot.task, pilot.planner.spec
    if spec.map_shape is None or spec.num_headings != 4:
        raise UserError(f"task {task.name} has no MiniGrid map to draw")
    env = task.new_env()
    seen = task.observe(env, env.reset(seed=seed)[0])
    execute = execute or pilot.planner.config.execute
    pilot.start(seed)
    frames: list[Image.Image] = []
    mission = spec.decode_mission(seen["mission"]) if "mission" in seen else task.name
    steps, success, ended, over = 0, False, False, False
    while not over:
        plan = pilot.plan(seen, keep_trace=False)
        for place in range(min(execute, len(plan.actions))):
            action = int(plan.actions[place])
            ahead = [] if plan.states is None else plan.states[place:].tolist()
            base = overlay(picture(seen["map"], spec.pose(int(seen["state"]))), spec, ahead,
                           [] if plan.goals is None else plan.goals[0].tolist())  # fmt: skip
            words = [ACTIONS[int(token)] for token in plan.actions]
            frames.append(strip(base, words, [k == place for k in range(len(words))], f"step {steps}   {mission}"))
            raw, reward, terminated, truncated, info = env.step(action)
            seen = task.observe(env, raw)
            pilot.observe(action, seen)
            steps += 1
            success = task.succeeded(float(reward), terminated, info)
            ended = terminated or truncated or steps >= task.max_steps
            over = ended or steps == limit
            if over:
                break
    base = picture(seen["map"], spec.pose(int(seen["state"])))
    outcome = f"solved in {steps} steps" if success else "not solved" if ended else f"its first {steps} steps"
    frames.append(strip(base, [], [], f"{outcome}: {mission}"))
    pilot.start()
    return frames, outcome


def gif(frames: Iterable[Image.Image], milliseconds: int = 350) -> bytes:
    buffer = io.BytesIO()
    palette = [frame.convert("P", palette=Image.Palette.ADAPTIVE, colors=64) for frame in frames]
    pause = [milliseconds] * (len(palette) - 1) + [1600]
    palette[0].save(buffer, "GIF", save_all=True, append_images=palette[1:], duration=pause, loop=0)
    return buffer.getvalue()


def write_gif(path: Path, frames: Sequence[Image.Image], milliseconds: int = 350) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(gif(frames, milliseconds))
    os.replace(partial, path)
