"""Requests and responses of the API. Everything that comes in is bounded here.

A maze is text: one line per row, two characters per cell, as in `genplan.envs.layouts`; a mission is in BabyAI's
language.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_SIDE = 25  # cells
MAX_BODY = 65_536  # bytes
MAX_SEED = 2**31 - 1
MAX_ACTION_STEPS = 50
MAX_SAMPLES = 8  # plans that are drawn at once
MAX_TURN = 1000.0  # radians

Row = Annotated[str, Field(max_length=2 * MAX_SIDE, pattern="^[ -~]*$")]  # one line
Position = tuple[int, int]
Pose = tuple[int, int, int]  # x, y, direction (0 right, 1 down, 2 left, 3 up)
PlannerName = Annotated[str, Field(max_length=200, examples=["pretrained:MazeS4G1"])]
Pixels = Annotated[float, Field(ge=0, le=512, allow_inf_nan=False)]
Angle = Annotated[float, Field(ge=-MAX_TURN, le=MAX_TURN, allow_inf_nan=False)]
Start = tuple[Pixels, Pixels, Pixels, Pixels, Angle]  # PushT's state, as it is asked for
State = tuple[float, float, float, float, float]  # x and y of the agent, x, y and angle of the block
Point = tuple[float, float]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Maze(Strict):
    rows: list[Row] = Field(min_length=3, max_length=MAX_SIDE, description="two characters per cell",
                            examples=[["##########", "##>>....##", "##....AR##", "##########"]])  # fmt: skip
    mission: str = Field(min_length=1, max_length=200, examples=["go to the red ball"])


class Options(Strict):
    """How plans are sampled; what is left out is as the planner was trained."""

    iterations: int | None = Field(default=None, ge=1, le=50)
    temperature: float | None = Field(default=None, ge=0, le=5)
    order: Literal["random", "confidence", "margin", "near-to-far", "chain"] | None = None
    num_candidates: int | None = Field(default=None, ge=1, le=16)


class MazeRequest(Strict):
    task: str = Field(max_length=40, examples=["MazeS4G1"])
    seed: int = Field(1234, ge=0, le=MAX_SEED)


class MazeResponse(BaseModel):
    maze: Maze
    max_steps: int


class CheckResponse(BaseModel):
    possible: bool
    reason: str = ""


class PlanRequest(Strict):
    planner: PlannerName
    maze: Maze
    options: Options = Options()
    seed: int = Field(0, ge=0, le=MAX_SEED, description="of the planner's random draws")


class Frame(BaseModel):
    """A plan after some network calls."""

    t: float
    actions: list[int | None]  # None: still masked
    confidence: list[float]  # the largest probability of each action at this call
    states: list[Pose]  # the most likely ones
    goals: list[Position]  # the most likely ones of the next step
    energy: float


class Executed(BaseModel):
    """What the actions of a plan do in the simulator, whatever comes: to be drawn; no planner sees it."""

    executed: list[Pose] = Field(description="the poses that come, beside the planned ones and from the same one on, "
                                 "up to the end of plan or episode; empty if no states are planned")  # fmt: skip
    arrival: int | None = Field(description="after how many actions the episode succeeds, if it does")


class Candidate(Executed):
    frames: list[Frame]
    energy: float


class PlanResponse(BaseModel):
    candidates: list[Candidate]
    selected: int = Field(description="the candidate of least energy")
    milliseconds: float
    batch_size: int = Field(description="how many requests were planned in one batch, this one counted")


class EpisodeRequest(PlanRequest):
    action_steps: int | None = Field(None, ge=1, le=MAX_ACTION_STEPS, description="actions executed of each plan")
    slip: float = Field(0.0, ge=0, le=1, description="probability that another action happens than the one planned")
    max_steps: int = Field(200, ge=1, le=1000)


class CellChange(BaseModel):
    position: Position
    code: str


class Step(BaseModel):
    """One executed action, and the situation after it."""

    action: int
    pose: Pose
    expected: Pose | None  # the planned pose
    carrying: str
    changes: list[CellChange]
    plan: int  # index of the plan that it belongs to


class PlanSummary(Executed):
    actions: list[int]
    states: list[Pose]
    goals: list[Position]
    energy: float | None


class EpisodeResponse(BaseModel):
    start: Pose
    steps: list[Step]
    plans: list[PlanSummary]
    success: bool
    expert_steps: int | None = Field(description="steps of the expert; None where it fails or takes too long")
    milliseconds: float


class LandscapeRequest(Strict):
    planner: PlannerName
    maze: Maze
    goal: Position | None = Field(None, description="a sub-goal; left out, the planner's own")


class LandscapeResponse(BaseModel):
    energy: list[list[float | None]] = Field(description="per row and column, in nats; None where walls are")


class StartRequest(Strict):
    seed: int = Field(1234, ge=0, le=MAX_SEED)


class StartResponse(BaseModel):
    start: State
    max_steps: int


class PushTRequest(Strict):
    planner: PlannerName
    start: Start = Field(description="x and y of the agent, x, y and angle of the block, in pixels and radians",
                         examples=[(100.0, 400.0, 250.0, 300.0, 1.5)])  # fmt: skip
    options: Options = Options()
    seed: int = Field(0, ge=0, le=MAX_SEED, description="of the planner's random draws")


class PushTPlanRequest(PushTRequest):
    samples: int = Field(1, ge=1, le=MAX_SAMPLES, description="how many plans are drawn, each with its own candidates")


class Chunk(BaseModel):
    actions: list[Point] = Field(description="where the agent is to go, step by step")
    energy: float | None = Field(description="None: the method has no energies")


class PushTPlanResponse(BaseModel):
    candidates: list[Chunk] = Field(description="of all plans that were drawn")
    selected: int = Field(description="the candidate that an episode of the same seed begins with")
    frames: list[list[Point]] = Field(description="the actions that were most likely at every network call; empty of "
                                      "methods without denoising steps")  # fmt: skip
    milliseconds: float
    batch_size: int


class PushTEpisodeRequest(PushTRequest):
    action_steps: int | None = Field(None, ge=1, le=MAX_ACTION_STEPS, description="actions executed of each plan")
    max_steps: int = Field(300, ge=1, le=300)


class PushTStep(BaseModel):
    """One executed action, and the situation after it."""

    state: State
    coverage: float
    plan: int  # index of the plan that it belongs to
    plan_step: int  # which action of that plan it is


class PushTEpisodeResponse(BaseModel):
    start: State
    steps: list[PushTStep]
    plans: list[Chunk]
    success: bool
    milliseconds: float


class PlannerResponse(BaseModel):
    name: str
    method: str
    task: str
    plays: Literal["maze", "PushT", ""] = Field(description="on what it can be tried here")
    horizon: int
    action_steps: int
    defaults: dict[str, int | float | str | None] = Field(
        description="the options that it was trained with; None: its method has no such option"
    )
    has_trace: bool = Field(description="whether its plans come with the steps of their denoising")


class TaskResponse(BaseModel):
    name: str
    size: int
    max_steps: int
    description: str


class CatalogueResponse(BaseModel):
    planners: list[PlannerResponse]
    tasks: list[TaskResponse]
    vocabulary: list[str]
    runs: list[str]
    max_side: int = MAX_SIDE


class RunResponse(BaseModel):
    name: str
    step: int
    steps: int
    task: str
    curves: dict[str, list[tuple[int, float]]]


class Problem(BaseModel):
    """What was found, what was expected, what to do."""

    detail: str
