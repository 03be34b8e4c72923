// What the page shows of its state: the mazes, and the plan with its denoising.

import { ACTIONS, chart, html } from "./draw.js";
import { MazeView, stepsApart } from "./maze.js";
import { $, state } from "./page.js";
import { Player } from "./player.js";

export const mazeViews = [new MazeView($("maze-0")), new MazeView($("maze-1"))];
export const player = new Player({ onstep: () => { clearHeat(); show(); } });

let listedPlan = null; // the plan whose candidates are listed

export function clearHeat() {
  state.heat = null;
  $("landscape").setAttribute("aria-pressed", "false");
}

export function clearResults() {
  state.requestId++;
  Object.assign(state, { plan: null, comparedPlan: null, goal: null });
  clearHeat();
  player.clear();
}

export function show() {
  const compare = Boolean($("compare").value);
  $("second").hidden = !compare;
  $("name-0").textContent = $("planner").value;
  $("name-1").textContent = $("compare").value;
  $("player").hidden = !player.loaded;
  $("plan-view").hidden = !state.plan;
  $("hint").hidden = Boolean(state.plan);
  for (const [index, view] of mazeViews.entries()) {
    if (index === 1 && !compare) continue;
    const scene = player.loaded ? player.scene(index) : null;
    const content = scene ? scene.content : { rows: state.maze.rows, ...planOverlay(index) };
    $(`caption-${index}`).replaceChildren(scene ? scene.caption : state.maze.mission, ...legend(content));
    view.draw({ ...content, ...heatOverlay(index) });
  }
  if (state.plan) showPlan();
}

// Lines about marks that not every plan has.
function legend({ states = [], executed = [], arrival = null }) {
  const lines = [];
  if (stepsApart(states, executed).length) lines.push(["executed", "what the actions do, where that is not what was planned"]);
  if (arrival !== null && arrival < states.length) lines.push(["behind", "behind the arrival"]);
  return lines.map(([name, text]) => html("span", { class: `legend ${name}` }, text));
}

// The landscape is the first planner's.
function heatOverlay(index) {
  return index === 0 && state.heat ? { heat: state.heat, states: [], executed: [], goals: state.goal ? [state.goal] : [] } : {};
}

// The plan of a planner at the current iteration.
function planOverlay(index) {
  const plan = index === 0 ? state.plan : state.plan && state.comparedPlan;
  if (!plan) return {};
  const selected = index === 0 ? state.candidate : plan.selected;
  const candidate = plan.candidates[selected], { states, goals } = currentFrame(candidate);
  const { executed, arrival } = state.iteration + 1 < candidate.frames.length ? {} : candidate; // of the finished plan
  const alternatives = plan.candidates.filter((_, k) => k !== selected).map((candidate) => currentFrame(candidate).states);
  return { states, goals, alternatives, executed, arrival };
}

function currentFrame({ frames }) {
  return frames[Math.min(state.iteration, frames.length - 1)];
}

function showPlan() {
  const { frames } = state.plan.candidates[state.candidate], last = frames.length - 1;
  const iteration = Math.min(state.iteration, last), frame = frames[iteration];
  $("iteration").max = last;
  $("iteration").value = iteration;
  $("iteration-label").textContent = `Iteration ${iteration} of ${last}`;
  const end = (iteration === last ? state.plan.candidates[state.candidate].arrival : null) ?? frame.actions.length;
  $("tokens").replaceChildren(...frame.actions.map((token, k) => tokenItem(token, frame.confidence[k], k >= end)));
  const energies = frames.map((one, k) => [k, one.energy]);
  $("energy").replaceChildren(frames.length > 1 ? chart("energy by iteration", energies, iteration) : "");
  if (listedPlan !== state.plan) { // not at every frame: a button that is created again loses the focus
    listedPlan = state.plan;
    $("candidate-list").replaceChildren(...listedPlan.candidates.map(({ energy }, index) => html("button", {
      type: "button", onclick: () => { state.candidate = index; show(); },
    }, `${energy.toFixed(2)} nats${index === listedPlan.selected ? " ★ selected" : ""}`)));
  }
  for (const [index, button] of [...$("candidate-list").children].entries()) button.setAttribute("aria-pressed", String(index === state.candidate));
}

function tokenItem(token, confidence, behind) {
  const [symbol, name] = token === null ? ["▒", "masked"] : ACTIONS[token];
  return html("li", { class: token === null ? "" : behind ? "committed behind" : "committed", title: `${name}, confidence ${Math.round(100 * confidence)} %` },
    html("b", { "aria-hidden": "true" }, symbol), name,
    html("meter", { min: 0, max: 1, value: confidence, "aria-label": "confidence" }));
}
