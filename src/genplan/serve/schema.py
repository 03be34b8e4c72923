"""What the page and its server say to each other. Everything that comes in is bounded here.

A maze is text: one line per row, two characters per cell, as in `genplan.tasks.layouts`; a mission is in
BabyAI's words.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from genplan.config import OrderName

MAX_SIDE = 25  # cells
MAX_BODY = 65_536  # bytes
MAX_SEED = 2**31 - 1

Row = Annotated[str, Field(max_length=2 * MAX_SIDE, pattern="^[ -~]*$")]  # one line
Place = tuple[int, int]
Pose = tuple[int, int, int]  # x, y, heading (0 right, 1 down, 2 left, 3 up)
PlannerName = Annotated[str, Field(max_length=200, examples=["pretrained:MazeS4G1"])]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Maze(Strict):
    rows: list[Row] = Field(
        min_length=3,
        max_length=MAX_SIDE,
        description="two characters per cell",
        examples=[["##########", "##>>....##", "##....AR##", "##########"]],
    )
    mission: str = Field(min_length=1, max_length=200, examples=["go to the red ball"])


class Options(Strict):
    """How plans are made; what is left out is as the planner was trained."""

    iterations: int | None = Field(default=None, ge=1, le=50)
    temperature: float | None = Field(default=None, ge=0, le=5)
    order: OrderName | None = None
    candidates: int | None = Field(default=None, ge=1, le=16)


class Defaults(BaseModel):
    """What a planner was trained to do by itself; None: its method has no such option."""

    iterations: int | None
    temperature: float | None
    order: str | None
    candidates: int | None


class MazeRequest(Strict):
    task: str = Field(max_length=40, examples=["MazeS4G1"])
    seed: int = Field(1234, ge=0, le=MAX_SEED)


class MazeAnswer(BaseModel):
    maze: Maze
    max_steps: int


class CheckAnswer(BaseModel):
    possible: bool
    reason: str = ""


class PlanRequest(Strict):
    planner: PlannerName
    maze: Maze
    options: Options = Options()
    seed: int = Field(0, ge=0, le=MAX_SEED)


class Frame(BaseModel):
    """A plan after some network calls."""

    t: float
    actions: list[int | None]  # None: still masked
    confidence: list[float]  # of each action's likeliest token, at this call
    path: list[Pose]  # the states that the network expects
    goals: list[Place]  # where it expects to go next
    energy: float


class Candidate(BaseModel):
    frames: list[Frame]
    energy: float


class PlanAnswer(BaseModel):
    candidates: list[Candidate]
    chosen: int
    milliseconds: float
    batch: int = Field(description="how many requests were planned together with this one")


class EpisodeRequest(PlanRequest):
    execute: int | None = Field(None, ge=1, le=50, description="actions executed of each plan")
    slip: float = Field(0.0, ge=0, le=1, description="chance that another action happens than the one chosen")
    max_steps: int = Field(200, ge=1, le=1000)


class Change(BaseModel):
    place: Place
    code: str


class Step(BaseModel):
    """One executed action, and what was there after it."""

    action: int
    pose: Pose
    expected: Pose | None  # where the plan said the agent would be
    carrying: str
    changes: list[Change]
    plan: int  # which of the plans it belongs to


class ShortPlan(BaseModel):
    actions: list[int]
    path: list[Pose]
    goals: list[Place]
    energy: float | None


class EpisodeAnswer(BaseModel):
    start: Pose
    steps: list[Step]
    plans: list[ShortPlan]
    success: bool
    bot_steps: int | None
    milliseconds: float


class LandscapeRequest(Strict):
    planner: PlannerName
    maze: Maze
    goal: Place | None = Field(None, description="a sub-goal; left out, the planner's own")


class LandscapeAnswer(BaseModel):
    energy: list[list[float | None]] = Field(description="per row and column, in nats; None where walls are")


class PlannerAnswer(BaseModel):
    name: str
    method: str
    task: str
    horizon: int
    execute: int
    defaults: Defaults
    moving: bool = Field(description="whether its plans can be watched taking shape")


class TaskAnswer(BaseModel):
    name: str
    size: int
    max_steps: int
    what: str


class Catalogue(BaseModel):
    planners: list[PlannerAnswer]
    tasks: list[TaskAnswer]
    words: list[str]
    runs: list[str]
    max_side: int = MAX_SIDE


class RunAnswer(BaseModel):
    name: str
    step: int
    steps: int
    task: str
    curves: dict[str, list[tuple[int, float]]]


class Problem(BaseModel):
    """What was found, what was expected, what to do."""

    detail: str
