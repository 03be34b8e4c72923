// Plans, episodes and landscapes: requests for what is set on the page, and their results.

import { fetchApi } from "./api.js";
import { DIRECTIONS } from "./draw.js";
import { withCode } from "./maze.js";
import { $, fieldName, findPlanner, OPTIONS, readNumber, runTask, saveLink, showMessage, state } from "./page.js";
import { clearHeat, clearResults, player, show } from "./view.js";

const FRAME_MILLISECONDS = 120;

function options(name) {
  const defaults = findPlanner(name)?.defaults ?? {};
  const supported = OPTIONS.filter((id) => (defaults[fieldName(id)] ?? null) !== null);
  // Chains need a model of one step, which a compared planner may not have: it keeps its own order then.
  const order = $("order").value === "chain" ? defaults.order : $("order").value;
  return Object.fromEntries(supported.map((id) => [fieldName(id), id === "order" ? order || null : readNumber(id)]));
}

function planRequest(name) {
  return { planner: name, maze: state.maze, options: options(name), seed: readNumber("sample-seed") ?? 0 };
}

function episodeRequest(name) {
  return {
    ...planRequest(name), action_steps: readNumber("action-steps"), slip: readNumber("slip") ?? 0,
    max_steps: Math.min(state.maxSteps, 1000),
  };
}

export async function plan() {
  const startTime = performance.now(), requestId = ++state.requestId;
  player.clear();
  clearHeat();
  const names = [$("planner").value, $("compare").value].filter((name) => findPlanner(name));
  if (!names.length) throw new Error("choose a planner first");
  const plans = await Promise.all(names.map((name) => fetchApi("api/plan", planRequest(name))));
  if (requestId !== state.requestId) return;
  [state.plan, state.comparedPlan = null] = plans;
  state.candidate = state.plan.selected;
  state.iteration = 0;
  show();
  document.body.dataset.firstFrame = String(Math.round(performance.now() - startTime));
  saveLink();
  const { candidates, milliseconds, batch_size: batchSize } = state.plan;
  const numFrames = candidates[state.candidate].frames.length;
  const calls = numFrames > 1 ? `${numFrames - 1} network calls` : "one network call";
  showMessage(`planned in ${milliseconds} ms, ${calls}${batchSize > 1 ? `, in a batch of ${batchSize}` : ""}`);
  animateDenoising(1, requestId, numFrames);
}

// One frame after the other, until the visitor moves the slider.
function animateDenoising(iteration, requestId, numFrames) {
  if (iteration < numFrames) {
    setTimeout(() => {
      if (requestId !== state.requestId || state.iteration !== iteration - 1) return;
      state.iteration = iteration;
      show();
      animateDenoising(iteration + 1, requestId, numFrames);
    }, FRAME_MILLISECONDS);
  }
}

export async function run() {
  clearResults();
  const { requestId, maze } = state;
  const requests = [$("planner").value, $("compare").value].filter(Boolean).map(episodeRequest);
  const episodes = await Promise.all(requests.map((body) => fetchApi("api/episode", body)));
  if (requestId !== state.requestId) return;
  player.load(requests, episodes, maze);
  saveLink();
  player.play();
}

// The current maze: as it was drawn, or as the episode has changed it up to the step that is shown.
function currentMaze() {
  const scene = player.loaded ? player.scene(0) : null;
  if (!scene) return state.maze;
  const [x, y, direction] = scene.content.pose;
  return { rows: withCode(scene.content.rows, x, y, DIRECTIONS[direction]), mission: state.maze.mission };
}

export async function landscape() {
  player.pause();
  const requestId = ++state.requestId;
  const { energy } = await fetchApi("api/landscape", { planner: $("planner").value, maze: currentMaze(), goal: state.goal });
  if (requestId !== state.requestId) return;
  state.heat = energy;
  $("landscape").setAttribute("aria-pressed", "true");
  showMessage(state.goal ? `the energy of moving to each cell, with a sub-goal at ${state.goal.join(", ")}; click another cell`
    : "the energy of moving to each cell, white is low; click a cell to make it the sub-goal");
  show();
}

export function toggleLandscape() {
  if ($("landscape").getAttribute("aria-pressed") === "true") {
    clearHeat();
    state.goal = null;
    show();
    return;
  }
  state.plan = null;
  runTask($("landscape"), landscape);
}

// A function that computes again what the page shows now.
export function repeatLast() {
  if (player.loaded) return () => runTask($("run"), run);
  return state.plan ? () => runTask($("plan"), plan) : () => {};
}
