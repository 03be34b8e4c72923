"""Pictures: the denoising of a plan and an episode with its plans drawn over it, as animated GIFs; all tasks."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from genplan.envs import ENVS, make_env
from genplan.envs.babyai import CHANNEL_SIZES
from genplan.envs.grid import render_grid
from genplan.errors import UserError
from genplan.flow import Trace
from genplan.rollout import EnvBatch, rollout
from genplan.spec import Geometry, Observation, PlanSpec
from genplan.types import Env, OpenLoop, Planner, Task

MAX_SIDE, FONT_SIZE, CAPTION_HEIGHT = 480, 12, 40  # pixels
MAX_PICTURES = 100  # of an episode of continuous actions, whose steps are small
PATH_COLOR, GOAL_COLOR, MUTED = (64, 190, 255), (255, 200, 40), (125, 125, 125)
EXECUTED_COLOR = (255, 110, 190)  # pink
STAR = [(0.32 * r * np.cos(k * np.pi / 5 - np.pi / 2), 0.32 * r * np.sin(k * np.pi / 5 - np.pi / 2))
        for k, r in enumerate((1, 0.4) * 5)]  # fmt: skip
MASKED = "mask"
_font = cache(ImageFont.load_default)


def draw_grid(image: NDArray[np.uint8], pose: Sequence[int]) -> Image.Image:
    return Image.fromarray(render_grid(image, pose, MAX_SIDE // max(image.shape[:2])))


def render_frame(task: Task, env: Env, observation: Observation) -> Image.Image:
    """The current situation: MiniGrid's grid as it is observed, or else what the environment itself renders."""
    spec = task.spec
    if (geometry := _minigrid_geometry(spec)) is not None:
        return draw_grid(observation[spec.grid_field or ""], geometry.pose(int(observation[spec.state_field or ""])))
    if env.render_mode is None and "rgb_array" in env.metadata.get("render_modes", ()):
        env.unwrapped.render_mode = "rgb_array"  # not asked for when it was made: it is rarely drawn
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame looks for a display otherwise
    try:
        frame = env.render() if env.render_mode == "rgb_array" else None
    except Exception as error:  # a package for drawing is missing, most of the time
        reason = f"{'' if isinstance(error, UserError) else f'{type(error).__name__}: '}{error}".partition("\n")[0]
        raise UserError(f"the environment of task {task.name} cannot be drawn: {reason}; plans and evaluations do not "
                        "need it: leave out --gif") from error  # fmt: skip
    if not isinstance(frame, np.ndarray):
        raise UserError(
            f"task {task.name} has no MiniGrid grid to draw, and the render_mode of its environment is "
            f"{env.render_mode}, expected rgb_array: pass render_mode='rgb_array' where its make() makes it"
        )
    picture = Image.fromarray(frame.astype(np.uint8))
    picture.thumbnail((MAX_SIDE, MAX_SIDE))  # an episode has hundreds
    return picture


def _minigrid_geometry(spec: PlanSpec) -> Geometry | None:
    """Of a grid in MiniGrid's symbols that states point at."""
    geometry = spec.geometry
    is_minigrid = spec.grid_field is not None and spec.fields[spec.grid_field].sizes == CHANNEL_SIZES
    return geometry if is_minigrid and geometry is not None and geometry.directions == 4 else None


def draw_path(
    frame: Image.Image, spec: PlanSpec, states: Sequence[int], goals: Sequence[int], confidence: Sequence[float] = (),
    executed: Sequence[int] = (), arrival: int | None = None,
) -> Image.Image:  # fmt: skip
    """A path through the cells of `states`, wider where confidence is higher, and stars on `goals`; grids only.

    executed  what the actions do beside `states`, from the same one on: rings, where the two differ
    arrival   after how many actions the episode succeeds: what is planned behind it is grey
    """
    if (geometry := _minigrid_geometry(spec)) is None:
        return frame
    frame, tile = frame.copy(), frame.width // geometry.width
    draw, thick = ImageDraw.Draw(frame), tile / 28

    def center(state: int) -> tuple[float, float]:
        x, y, _ = geometry.pose(state)
        return (x + 0.5) * tile, (y + 0.5) * tile

    def dot(state: int, radius: float, **how: Any) -> None:
        x, y = center(state)
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], **how)

    for step, (before, after) in reversed(list(enumerate(pairwise(states), 1))):  # what comes first is on top
        color = PATH_COLOR if arrival is None or step <= arrival else MUTED
        width = thick * (1 + 4 * (confidence[step] if confidence else 1))
        draw.line([center(before), center(after)], color, round(width))
        dot(after, 3 * thick, fill=color)
    for step, (planned, state) in enumerate(zip(states, executed, strict=False)):
        if planned != state:
            draw.line([center(executed[max(step - 1, 0)]), center(state)], EXECUTED_COLOR, round(2 * thick))
            dot(state, 6 * thick, outline=EXECUTED_COLOR, width=round(2 * thick))
    if spec.goals is not None and spec.goals.points_at == spec.grid_field:
        for goal in goals:
            x, y = geometry.position(goal // spec.goals.directions)
            points = [((x + 0.5 + a) * tile, (y + 0.5 + b) * tile) for a, b in STAR]
            draw.polygon(points, outline=GOAL_COLOR, fill=None, width=round(2 * thick))
    return frame


def draw_actions(frame: Image.Image, task: Task, actions: NDArray[Any]) -> Image.Image:
    """Planned actions [H, *A] as a line that fades into the future, where the task knows their place on the picture."""
    if task.action_points is None:
        return frame
    frame = frame.copy()
    draw = ImageDraw.Draw(frame, "RGBA")
    places = [(x * frame.width, y * frame.height) for x, y in task.action_points(actions).tolist()]
    for number, (x, y) in reversed(list(enumerate(places))):  # what comes first is on top
        color = (*EXECUTED_COLOR, round(255 * (1 - 0.8 * number / len(places))))
        draw.line([places[max(number - 1, 0)], (x, y)], color, 3)
        draw.ellipse([x - 4, y - 4, x + 4, y + 4], color)
    return frame


def first_plan(task: Task, frame: Image.Image, actions: NDArray[Any]) -> list[Image.Image]:
    """A picture of a plan by itself, where it can be drawn; else none."""
    labels = action_labels(task.spec, actions)
    drawn = add_caption(draw_actions(frame, task, actions), labels, [True] * len(labels), "the first plan")
    return [] if task.action_points is None else [drawn]


def add_caption(frame: Image.Image, labels: Sequence[str], highlighted: Sequence[bool], caption: str) -> Image.Image:
    """The frame with a caption and a line of labels under it; labels are cut to the width that they have."""
    taller = Image.new("RGB", (frame.width, frame.height + CAPTION_HEIGHT), (20, 20, 24))
    taller.paste(frame)
    draw = ImageDraw.Draw(taller)
    draw.text((4, frame.height + 3), caption, (230, 230, 230), _font(FONT_SIZE))
    width = (frame.width - 8) / max(len(labels), 1)
    for index, (label, bright) in enumerate(zip(labels, highlighted, strict=True)):
        while len(label) > 1 and draw.textlength(label, _font(FONT_SIZE)) > width - 3:
            label = label[:-1]
        color = (255, 255, 255) if bright else MUTED
        draw.text((4 + index * width, frame.height + CAPTION_HEIGHT // 2 + 1), label, color, _font(FONT_SIZE))
    return taller


def action_labels(spec: PlanSpec, actions: NDArray[np.generic]) -> list[str]:
    """Actions [H, *A] of the environment, or their tokens: names, or numbers if actions are continuous."""
    if spec.actions.n is not None:
        return [spec.actions.name(int(action)) for action in actions]
    return [",".join(f"{round(number, 1):g}" for number in action.flatten().tolist()) for action in actions]


def plan_frames(
    spec: PlanSpec, frame: Image.Image, observation: Observation, trace: Trace, mask: int | None,
    executed: OpenLoop | None = None,
) -> list[Image.Image]:  # fmt: skip
    """One picture per network call over `frame` (see `render_frame`): committed actions, expected states and goals.

    mask      the token of an action that is still masked, the number of action tokens; None if the noise is not masks
    executed  what the finished plan does, for the last picture
    """
    calls = len(trace.t) - 1
    pictures = []
    for call in range(calls + 1):
        last = min(call, calls - 1)
        tokens = trace.tokens["actions"][call, 0].cpu().numpy()
        committed = (tokens.reshape(len(tokens), -1) != (-1 if mask is None else mask)).all(1).tolist()
        labels = [name if done else MASKED for name, done in zip(action_labels(spec, tokens), committed, strict=True)]
        states, confidence, goals = [], [], []
        if "states" in trace.tokens:
            expected = trace.predicted["states"][last] if call < calls else trace.tokens["states"][call]
            states, confidence = expected[0].tolist(), trace.confidence["states"][last, 0].tolist()
            states[0] = int(observation[spec.state_field]) if spec.state_field is not None else states[0]
        if "goals" in trace.predicted:
            goals = trace.predicted["goals"][last, 0, 0].flatten().tolist()
        came, arrival = came_and_arrival(states, executed if call == calls else None)
        bright = [done and (arrival is None or step < arrival) for step, done in enumerate(committed)]
        text = f"t = {float(trace.t[call]):.2f}   energy {float(trace.energy[last, 0]):.2f}{_remark(states, came)}"
        text += f"   {spec.mission(observation) or ''}"
        picture = draw_path(frame, spec, states, goals, confidence, came, arrival)
        pictures.append(add_caption(picture, labels, bright, text))
    return pictures


def came_and_arrival(states: Sequence[int], executed: OpenLoop | None) -> tuple[list[int], int | None]:
    """What the actions of a plan do beside its states, from the same one on, and after how many it arrives."""
    return ([], None) if executed is None else ([*states[:1], *executed.came.tolist()], executed.arrival)


def _remark(states: Sequence[int], came: Sequence[int]) -> str:
    """Of a caption, where the two differ."""
    return "   pink: what the actions do" if list(came) != list(states[: len(came)]) else ""


def episode_frames(
    planner: Planner, task: Task, seed: int, *, action_steps: int | None = None, limit: int | None = None
) -> tuple[list[Image.Image], str]:
    """An episode as an evaluation plays it, at most `limit` steps of it, with its plans; and its outcome in words."""
    spec, env = task.spec, task.make_env()
    batch = EnvBatch(task, [seed], envs=[env])
    frame = render_frame(task, env, batch.current[0])
    mission = spec.mission(batch.current[0]) or task.name
    frames: list[Image.Image] = []
    labels, states, goals, (came, arrival) = [], [], [], came_and_arrival((), None)  # of the current plan
    total, success, done, number, actions = 0.0, False, False, 0, np.empty(0)
    on_grid, every = _minigrid_geometry(spec) is not None, 1 if spec.actions.n else -(-task.max_steps // MAX_PICTURES)
    for number, step in enumerate(
        islice(rollout(planner, batch, action_steps=action_steps, execute=on_grid), limit), 1
    ):
        if (plan := step.plan) is not None:
            actions = plan.actions[0].cpu().numpy()
            labels = action_labels(spec, actions)
            states = [] if plan.states is None else plan.states[0].tolist()
            goals = [] if plan.goals is None else plan.goals[0, 0].flatten().tolist()
            came, arrival = came_and_arrival(states, step.executed[0] if step.executed else None)
        if (number - 1) % every == 0:
            index = step.plan_step[0]
            text = f"step {number - 1}   {mission}{_remark(states[index:], came[index:])}"
            left = None if arrival is None else arrival - index
            picture = draw_path(frame, spec, states[index:], goals, (), came[index:], left)
            picture = draw_actions(picture, task, actions[index:])
            frames.append(add_caption(picture, labels, [k == index for k in range(len(labels))], text))
        total += step.result.rewards[0]
        success, done = success or step.result.success[0], step.result.done[0]
        if number % every == 0 or done or number == limit:
            frame = render_frame(task, env, batch.current[0])
    batch.close()
    if task.success is None:
        outcome = f"return {total:.1f} in {number} steps"
    elif success:
        outcome = f"solved in {number} steps"
    else:
        outcome = "not solved" if done else f"its first {number} steps"
    frames.append(add_caption(frame, [], [], f"{outcome}: {mission}"))
    return frames, outcome


def gif(frames: Iterable[Image.Image], before: Sequence[Image.Image] = ()) -> bytes:
    """An endless animation, with a pause at its end; at half the speed, and with a pause, what comes before."""
    buffer, slow = io.BytesIO(), [700] * (len(before) - 1) + [1600] * bool(before)
    pictures = (frame.convert("P", palette=Image.Palette.ADAPTIVE, colors=64) for frame in (*before, *frames))
    first, *others = pictures
    duration = slow + [350] * (len(others) - len(slow)) + [1600] * (len(others) >= len(slow))
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
    return buffer.getvalue()


def gallery(file_format: str, seed: int = 1234) -> bytes:
    """A picture of every task, in a format that PIL knows."""
    columns, side, title, gap = 4, 320, 36, 12
    width, height = side + gap, side + title + gap
    sheet = Image.new("RGB", (columns * width + gap, -(-len(ENVS) // columns) * height + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for index, entry in enumerate(ENVS.values()):
        env = make_env(entry.name, render_mode="rgb_array", highlight=False)
        env.reset(seed=seed)
        x, y = gap + index % columns * width, gap + index // columns * height
        draw.text((x, y), f"{entry.name}, {entry.size}×{entry.size}", fill="black", font_size=14)
        draw.text((x, y + 18), env.mission[:58], fill=(90, 90, 90), font_size=11)
        sheet.paste(Image.fromarray(env.render()).resize((side, side), Image.Resampling.LANCZOS), (x, y + title))
    buffer = io.BytesIO()
    sheet.save(buffer, file_format)
    return buffer.getvalue()
