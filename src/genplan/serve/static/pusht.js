// PushT's page: a state that is dragged, plans that are drawn in it, and episodes that begin there.

import { fetchApi } from "./api.js";
import { chart, html } from "./draw.js";
import { $, fieldName, fillSelect, hasOption, OPTIONS, ORDERS, playable, readNumber, runTask, setDefaults, showMessage, state } from "./page.js";
import { Player } from "./player.js";
import { Board, bounded } from "./pusht-board.js";

const FRAME_MILLISECONDS = 120, REPLAN_MILLISECONDS = 150, SOLVED = 0.95;
const FIELDS = ["planner", ...OPTIONS, "samples", "action-steps", "seed", "sample-seed"];
const percent = (share) => `${(100 * share).toFixed(1)} %`;

class PushTPlayer extends Player {
  // What the board shows at the current step: before it, the agent follows the rest of the plan.
  get shown() {
    const { start, steps, plans } = this.episodes[0], next = steps[this.step];
    const chunk = next ? plans[next.plan].actions.slice(next.plan_step) : [];
    return { state: this.step ? steps[this.step - 1].state : start, chunk };
  }

  get caption() {
    const { steps } = this.episodes[0], coverages = steps.slice(0, this.step).map((step) => step.coverage);
    if (!this.step) return `step 0 of ${steps.length}`;
    const most = Math.max(...coverages), first = coverages.findIndex((coverage) => coverage > SOLVED);
    const solved = first < 0 ? "" : `, solved at step ${first + 1}`;
    return `step ${this.step} of ${steps.length}: coverage ${percent(coverages.at(-1))}, maximum so far ${percent(most)}${solved}`;
  }
}

const player = new PushTPlayer({ onstep: show });
const board = new Board($("board"), { onmove: move, ondone: () => { saveLink(); replan(); } });
let start = board.state;
let following = false; // whether a plan follows what is dragged: one is shown, or asked for
let listed = null; // the plan whose candidates are listed
let timer = null;

function clearResults() {
  state.requestId++;
  state.plan = null;
  player.clear();
}

// An episode or a plan ends where the visitor intervenes; what is shown then is where the next one begins.
function move(changed) {
  start = changed;
  clearResults();
  show();
}

// Not at every turn of a wheel or repetition of a key: at the last.
function replan() {
  clearTimeout(timer);
  timer = setTimeout(() => following && runTask($("plan"), plan), REPLAN_MILLISECONDS);
}

function request() {
  const options = OPTIONS.filter((id) => !$(id).disabled).map((id) => [fieldName(id), id === "order" ? $(id).value : readNumber(id)]);
  if (!$("planner").value) throw new Error("there is no planner of PushT in the served folder; train one with: genplan train PushT");
  return { planner: $("planner").value, start, options: Object.fromEntries(options), seed: readNumber("sample-seed") ?? 0 };
}

async function loadStart() {
  following = false;
  clearResults();
  const { requestId } = state, loaded = await fetchApi("api/pusht/start", { seed: readNumber("seed") ?? 0 });
  if (requestId !== state.requestId) return;
  start = loaded.start;
  show();
  saveLink();
}

async function plan() {
  if (player.loaded) start = bounded(player.shown.state); // planned where the episode is
  clearResults();
  following = true;
  const { requestId } = state, body = { ...request(), samples: readNumber("samples") ?? 1 };
  const found = await fetchApi("api/pusht/plan", body);
  if (requestId !== state.requestId) return;
  Object.assign(state, { plan: found, candidate: found.selected, iteration: 0 });
  show();
  saveLink();
  const { candidates, milliseconds, batch_size: batchSize } = found;
  showMessage(`drew ${candidates.length} plans in ${milliseconds} ms${batchSize > 1 ? `, in a batch of ${batchSize}` : ""}`);
  animate(1, requestId);
}

// One network call after the other, until the visitor moves the slider.
function animate(iteration, requestId) {
  setTimeout(() => {
    if (requestId !== state.requestId || state.iteration !== iteration - 1 || iteration >= state.plan.frames.length) return;
    state.iteration = iteration;
    show();
    animate(iteration + 1, requestId);
  }, FRAME_MILLISECONDS);
}

async function run() {
  following = false;
  clearResults();
  const { requestId } = state, body = { ...request(), action_steps: readNumber("action-steps") };
  const episode = await fetchApi("api/pusht/episode", body);
  if (requestId !== state.requestId) return;
  player.load([body], [episode], null);
  saveLink();
  showMessage(`played ${episode.steps.length} steps with ${episode.plans.length} plans in ${(episode.milliseconds / 1000).toFixed(1)} s`);
  player.play();
}

function show() {
  $("player").hidden = !player.loaded;
  $("plan-view").hidden = !state.plan;
  $("hint").hidden = Boolean(state.plan) || player.loaded;
  if (player.loaded) {
    const { state: shown, chunk } = player.shown, { steps } = player.episodes[0];
    board.draw(shown, chunk);
    $("caption").textContent = player.caption;
    $("coverage").replaceChildren(chart("coverage by step", steps.map(({ coverage }, k) => [k + 1, coverage]), player.step - 1));
    return;
  }
  $("coverage").replaceChildren();
  $("caption").textContent = "";
  if (state.plan) showPlan();
  else board.draw(start);
}

function showPlan() {
  const { candidates, frames, selected } = state.plan, last = Math.max(frames.length - 1, 0), { actions } = candidates[state.candidate];
  const settling = state.candidate === selected && state.iteration < last; // frames are those of the selected plan
  board.draw(start, settling ? frames[state.iteration] : actions, settling ? [] : candidates.map((one) => one.actions));
  $("caption").textContent = `${actions.length} actions of the plan, ${candidates.length - 1} others drawn lightly`;
  $("iterate").hidden = !last;
  $("iteration").max = last;
  $("iteration").value = state.iteration;
  $("iteration-label").textContent = `Iteration ${state.iteration} of ${last}`;
  if (listed !== state.plan) { // not at every frame: a button that is created again loses the focus
    listed = state.plan;
    $("candidate-list").replaceChildren(...candidates.map(({ energy }, index) => html("button", {
      type: "button", onclick: () => { Object.assign(state, { candidate: index, iteration: last }); show(); },
    }, `${energy === null ? `plan ${index + 1}` : `${energy.toFixed(2)} nats`}${index === selected ? " ★ selected" : ""}`)));
  }
  for (const [index, button] of [...$("candidate-list").children].entries()) button.setAttribute("aria-pressed", String(index === state.candidate));
}

function saveLink() {
  const fields = FIELDS.map((id) => [id, $(id).value]);
  history.replaceState(null, "", `#${new URLSearchParams([["start", start.map((one) => one.toFixed(3))], ...fields])}`);
}

// Whether the address says where the block and the agent are.
function restoreLink() {
  const link = new URLSearchParams(location.hash.slice(1)), named = link.get("planner");
  if (named && !hasOption("planner", named)) showMessage(`the planner '${named}' of this link does not exist here; choose another`, true);
  else if (named) $("planner").value = named;
  setDefaults();
  for (const id of FIELDS) if (id !== "planner" && link.has(id) && hasOption(id, link.get(id))) $(id).value = link.get(id);
  const linked = (link.get("start") ?? "").split(",").map(Number);
  if (linked.length !== 5 || !linked.every(Number.isFinite)) return false;
  start = bounded(linked);
  return true;
}

async function init() {
  state.catalogue = await fetchApi("api/catalogue");
  fillSelect($("planner"), playable().map((planner) => planner.name));
  fillSelect($("order"), ORDERS.filter((order) => order !== "chain")); // chains need a model of discrete steps
  show();
  const on = (id, event, action) => $(id).addEventListener(event, action);
  const repeat = () => { saveLink(); if (player.loaded) runTask($("run"), run); else replan(); };
  on("load-start", "click", (event) => runTask(event.target, loadStart));
  on("plan", "click", (event) => runTask(event.target, plan));
  on("run", "click", (event) => runTask(event.target, run));
  on("planner", "change", () => { setDefaults(); repeat(); });
  for (const id of [...OPTIONS, "samples", "action-steps", "sample-seed"]) on(id, "change", repeat);
  on("iteration", "input", () => { state.iteration = readNumber("iteration"); show(); });
  on("play", "click", () => player.toggle());
  on("back", "click", () => player.move(-1));
  on("forward", "click", () => player.move(1));
  on("speed", "input", () => { player.speed = readNumber("speed"); });
  on("step", "input", () => player.seek(readNumber("step")));
  window.addEventListener("hashchange", () => { if (restoreLink()) { clearResults(); show(); } });
  player.speed = readNumber("speed");
  if (restoreLink()) show();
  else await loadStart();
}

init().catch((error) => {
  showMessage(error.message, true);
  for (const id of ["plan", "run"]) $(id).disabled = true;
}).finally(() => { document.body.dataset.ready = "yes"; });
