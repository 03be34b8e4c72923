"""Animated GIFs: the denoising of a plan, and an episode with its plans drawn over it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from genplan.envs.grid import CHANNEL_SIZES, render_grid
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.flow import Trace
from genplan.rollout import EnvBatch, rollout
from genplan.spec import Observation, PlanSpec
from genplan.types import Env, Planner, Task

TILE, CAPTION_HEIGHT, CHARACTER_WIDTH = 28, 30, 6  # pixels
PATH_COLOR, GOAL_COLOR, MUTED = (64, 190, 255), (255, 200, 40), (110, 110, 110)
MASKED = "·"


def has_minigrid(spec: PlanSpec) -> bool:
    """Whether states point at a grid in MiniGrid's symbols, which can be drawn from an observation alone."""
    geometry, name = spec.geometry, spec.grid_field
    return geometry is not None and geometry.directions == 4 and spec.fields[name or ""].sizes == CHANNEL_SIZES


def draw_grid(image: NDArray[np.uint8], pose: Sequence[int]) -> Image.Image:
    return Image.fromarray(render_grid(image, pose, TILE))


def render_frame(task: Task, env: Env, observation: Observation) -> Image.Image:
    """The current situation: the grid of the observation, or else what the environment itself renders."""
    spec = task.spec
    if has_minigrid(spec) and spec.geometry is not None:
        pose = spec.geometry.pose(int(observation[spec.state_field or ""]))
        return draw_grid(observation[spec.grid_field or ""], pose)
    frame = env.render() if env.render_mode == "rgb_array" else None
    if not isinstance(frame, np.ndarray):
        raise UserError(
            f"task {task.name} has no MiniGrid grid to draw, and the render_mode of its environment is "
            f"{env.render_mode}, expected rgb_array: pass render_mode='rgb_array' where its make() makes it"
        )
    return Image.fromarray(frame.astype(np.uint8))


def draw_path(
    frame: Image.Image,
    spec: PlanSpec,
    states: Sequence[int],
    goals: Sequence[int] = (),
    confidence: Sequence[float] = (),
) -> Image.Image:
    """A path through the cells of `states`, wider where confidence is higher, and stars on `goals`; grids only."""
    geometry = spec.geometry
    if geometry is None or not has_minigrid(spec):
        return frame
    frame = frame.copy()
    draw = ImageDraw.Draw(frame)
    centers = [((x + 0.5) * TILE, (y + 0.5) * TILE) for x, y, _ in map(geometry.pose, states)]
    for step in range(1, len(centers)):
        if centers[step] != centers[step - 1]:
            width = 1 + round(4 * (confidence[step] if len(confidence) else 1))
            draw.line([centers[step - 1], centers[step]], fill=PATH_COLOR, width=width)
    for x, y in centers[1:]:
        draw.ellipse([x - 3, y - 3, x + 3, y + 3], fill=PATH_COLOR)
    if spec.goals is not None and spec.goals.points_at == spec.grid_field:
        for goal in goals:
            x, y = geometry.position(goal // spec.goals.directions)
            _draw_star(draw, (x + 0.5) * TILE, (y + 0.5) * TILE)
    return frame


def _draw_star(draw: ImageDraw.ImageDraw, x: float, y: float, size: float = 9) -> None:
    corners = [(np.pi * k / 5 - np.pi / 2, size if k % 2 == 0 else size * 0.4) for k in range(10)]
    points = [(x + radius * np.cos(angle), y + radius * np.sin(angle)) for angle, radius in corners]
    draw.polygon(points, outline=GOAL_COLOR, fill=None, width=2)


def add_caption(frame: Image.Image, labels: Sequence[str], highlighted: Sequence[bool], caption: str) -> Image.Image:
    """The frame with a caption and a line of labels under it; labels are cut to the width that they have."""
    taller = Image.new("RGB", (frame.width, frame.height + CAPTION_HEIGHT), (20, 20, 24))
    taller.paste(frame)
    draw = ImageDraw.Draw(taller)
    draw.text((4, frame.height + 2), caption, fill=(230, 230, 230))
    width = (frame.width - 8) / max(len(labels), 1)
    length = max(int(width / CHARACTER_WIDTH), 1)
    for index, (label, bright) in enumerate(zip(labels, highlighted, strict=True)):
        color = (255, 255, 255) if bright else MUTED
        draw.text((4 + index * width, frame.height + 15), label[:length], fill=color)
    return taller


def action_labels(spec: PlanSpec, actions: NDArray[np.generic]) -> list[str]:
    """Actions [H, *A] of the environment: their names, or their numbers if they are continuous."""
    if spec.actions.n is not None:
        return [spec.actions.name(int(action)) for action in actions]
    return [",".join(f"{number:.1f}" for number in action) for action in actions]


def plan_frames(
    spec: PlanSpec,
    frame: Image.Image,
    observation: Observation,
    trace: Trace,
    *,
    caption: str = "",
    row: int = 0,
    mask: int | None = None,
) -> list[Image.Image]:
    """One picture per network call over `frame` (see `render_frame`): committed actions, expected states and goals.

    row   which of the trace's rows, one per candidate
    mask  the token of an action that is still masked, the number of action tokens; left out, that of discrete actions
    """
    mask = spec.actions.n if mask is None else mask
    calls = len(trace.t) - 1
    pictures = []
    for call in range(calls + 1):
        last = min(call, calls - 1)
        tokens = trace.tokens["actions"][call, row].cpu().numpy()
        committed = (tokens != mask).reshape(len(tokens), -1).all(1).tolist()
        labels = [_token_label(spec, token) if done else MASKED for token, done in zip(tokens, committed, strict=True)]
        states, confidence, goals = [], [], []
        if "states" in trace.tokens:
            expected = trace.predicted["states"][last] if call < calls else trace.tokens["states"][call]
            states = expected[row].tolist()
            states[0] = int(observation[spec.state_field]) if spec.state_field is not None else states[0]
            confidence = trace.confidence["states"][last, row].tolist()
        if "goals" in trace.predicted:
            goals = trace.predicted["goals"][last, row, 0].flatten().tolist()
        text = f"t = {float(trace.t[call]):.2f}   energy {float(trace.energy[last, row]):.2f}   {caption}"
        pictures.append(add_caption(draw_path(frame, spec, states, goals, confidence), labels, committed, text))
    return pictures


def _token_label(spec: PlanSpec, token: NDArray[np.int64]) -> str:
    """Tokens of discrete actions are the actions themselves; others are shown as codes."""
    return spec.actions.name(int(token)) if spec.actions.n is not None else ",".join(map(str, token.flatten().tolist()))


def episode_frames(
    planner: Planner, task: Task, seed: int, *, action_steps: int | None = None, limit: int | None = None
) -> tuple[list[Image.Image], str]:
    """An episode as an evaluation plays it, at most `limit` steps of it, with its plans; and its outcome in words."""
    spec, env = task.spec, task.make_env()
    batch = EnvBatch(task, [seed], envs=[env])
    frame = render_frame(task, env, batch.current[0])
    mission = spec.mission(batch.current[0]) or task.name
    frames: list[Image.Image] = []
    plan, total, success, done = None, 0.0, False, False
    for step in rollout(planner, batch, action_steps=action_steps):
        plan = plan if step.plan is None else step.plan
        assert plan is not None
        index = step.plan_step[0]
        labels = action_labels(spec, plan.actions[0].cpu().numpy())
        states = [] if plan.states is None else plan.states[0, index:].tolist()
        goals = [] if plan.goals is None else plan.goals[0, 0].flatten().tolist()
        highlighted = [k == index for k in range(len(labels))]
        text = f"step {len(frames)}   {mission}"
        frames.append(add_caption(draw_path(frame, spec, states, goals), labels, highlighted, text))
        frame = render_frame(task, env, batch.current[0])
        total += step.result.rewards[0]
        success, done = success or step.result.success[0], step.result.done[0]
        if len(frames) == limit:
            break
    batch.close()
    num_steps = len(frames)
    if task.success is None:
        outcome = f"return {total:.1f} in {num_steps} steps"
    elif success:
        outcome = f"solved in {num_steps} steps"
    else:
        outcome = "not solved" if done else f"its first {num_steps} steps"
    frames.append(add_caption(frame, [], [], f"{outcome}: {mission}"))
    return frames, outcome


def gif(frames: Iterable[Image.Image], milliseconds: int = 350) -> bytes:
    """An endless animation, with a pause at its end."""
    buffer = io.BytesIO()
    pictures = [frame.convert("P", palette=Image.Palette.ADAPTIVE, colors=64) for frame in frames]
    duration = [milliseconds] * (len(pictures) - 1) + [1600]
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
    return buffer.getvalue()


def write_gif(path: Path, frames: Iterable[Image.Image], milliseconds: int = 350) -> None:
    write_atomically(path, gif(frames, milliseconds))
