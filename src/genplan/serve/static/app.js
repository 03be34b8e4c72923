// The page: one state, what the visitor does to it, and what is shown of it.

import { ask } from "./api.js";
import { Board, codeAt, describe, poseOf, withCode } from "./board.js";
import { ACTIONS, chart, COLOURS, HEADINGS, make, shape, thing } from "./draw.js";
import { fromLink, toLink } from "./link.js";
import { Player } from "./player.js";

const THINGS = [
  ["##", "wall"], ["..", "floor"], ["D", "closed door"], ["O", "open door"], ["L", "locked door"],
  ["K", "key"], ["A", "ball"], ["B", "box"], [">>", "agent"],
];
const ORDERS = ["random", "confidence", "margin", "near-to-far"];
const $ = (id) => document.getElementById(id);

const state = {
  maze: { rows: ["######", "##>>##", "######"], mission: "" }, maxSteps: 400,
  tool: "##", possible: true, plan: null, otherPlan: null, candidate: 0, iteration: 0, heat: null, goal: null,
};
let catalogue = null;
const boards = [new Board($("board-0"), { onpick: pick }), new Board($("board-1"))];
boards[0].onmove = (x, y) => say(describe(state.maze.rows, x, y));
const player = new Player({ onmoment: () => { cool(); show(); } });

// Whatever is asked for belongs to a turn; an answer that comes when another has begun is not wanted any more.
let turn = 0;

function say(text, bad = false) {
  $("message").textContent = text;
  $("message").classList.toggle("bad", bad);
}

async function doing(button, work) {
  button.setAttribute("aria-busy", "true"); // not disabled: it would lose the focus
  try {
    await work();
  } catch (error) {
    say(error.message, true);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

// --- what is asked for ------------------------------------------------------------------------------------------------

function number(id) {
  const text = $(id).value;
  return text === "" ? null : Number(text);
}

function known(name) {
  return catalogue.planners.find((planner) => planner.name === name);
}

function options(name) {
  const chosen = {
    iterations: number("iterations"), temperature: number("temperature"),
    order: $("order").value || null, candidates: number("candidates"),
  };
  const defaults = known(name)?.defaults ?? {};
  return Object.fromEntries(Object.entries(chosen).filter(([key]) => defaults[key] !== null && defaults[key] !== undefined));
}

function request(name) {
  return { planner: name, maze: state.maze, options: options(name), seed: number("chance") ?? 0 };
}

function episodeRequest(name) {
  return { ...request(name), execute: number("execute"), slip: number("slip") ?? 0, max_steps: Math.min(state.maxSteps, 1000) };
}

// --- the maze ----------------------------------------------------------------------------------------------------------

async function newMaze() {
  const mine = ++turn;
  const found = await ask("api/maze", { task: $("task").value, seed: number("seed") ?? 0 });
  if (mine !== turn) return;
  state.maxSteps = found.max_steps;
  $("mission").value = found.maze.mission;
  setMaze(found.maze);
}

function setMaze(maze) {
  state.maze = maze;
  forget();
  show();
  remember();
  check();
}

function forget() {
  turn++;
  Object.assign(state, { plan: null, otherPlan: null, goal: null });
  cool();
  player.clear();
}

function cool() {
  state.heat = null;
  $("landscape").setAttribute("aria-pressed", "false");
}

function pick(x, y) {
  if ($("landscape").getAttribute("aria-pressed") === "true") {
    state.goal = [x, y];
    doing($("landscape"), landscape);
    return;
  }
  const rows = state.maze.rows, edge = x === 0 || y === 0 || y === rows.length - 1 || x === rows[0].length / 2 - 1;
  if (edge) {
    say("the edge of a maze is a wall");
    return;
  }
  let code = state.tool.length === 2 ? state.tool : state.tool + $("colour").value;
  let next = rows;
  if (HEADINGS.includes(code)) {
    const there = poseOf(rows);
    if (there && there[0] === x && there[1] === y) code = HEADINGS[(there[2] + 1) % 4]; // turn it
    else if (there) next = withCode(next, there[0], there[1], "..");
  } else if (HEADINGS.includes(codeAt(rows, x, y))) {
    say("the agent is here; put it elsewhere first");
    return;
  }
  setMaze({ ...state.maze, rows: withCode(next, x, y, code) });
}

let checking = 0;
async function check() {
  const turn = ++checking;
  try {
    const { possible, reason } = await ask("api/check", state.maze);
    if (turn !== checking) return;
    state.possible = possible;
    $("verdict").textContent = possible ? "This can be done." : reason;
    $("verdict").classList.toggle("bad", !possible);
  } catch (error) {
    if (turn === checking) {
      state.possible = false;
      $("verdict").textContent = error.message;
      $("verdict").classList.add("bad");
    }
  }
  for (const id of ["plan", "run", "landscape"]) $(id).disabled = !state.possible;
}

// --- plan, run, landscape ----------------------------------------------------------------------------------------------

async function plan() {
  const began = performance.now(), mine = ++turn;
  player.clear();
  cool();
  const names = [$("planner").value, $("other").value].filter((name) => known(name));
  if (!names.length) throw new Error("choose a planner first");
  const plans = await Promise.all(names.map((name) => ask("api/plan", request(name))));
  if (mine !== turn) return;
  [state.plan, state.otherPlan = null] = plans;
  state.candidate = state.plan.chosen;
  state.iteration = 0;
  show();
  document.body.dataset.firstFrame = String(Math.round(performance.now() - began));
  remember();
  const frames = state.plan.candidates[state.candidate].frames.length;
  const calls = frames > 1 ? `${frames - 1} network calls` : "one network call";
  say(`planned in ${state.plan.milliseconds} ms, ${calls}${state.plan.batch > 1 ? `, together with ${state.plan.batch - 1} others` : ""}`);
  shaping(1, mine, frames);
}

// It takes shape before one's eyes, unless one scrubs.
function shaping(k, mine, frames) {
  if (k < frames) {
    setTimeout(() => {
      if (mine !== turn || state.iteration !== k - 1) return;
      state.iteration = k;
      show();
      shaping(k + 1, mine, frames);
    }, 120);
  }
}

async function run() {
  forget();
  const mine = turn, maze = state.maze;
  const requests = [$("planner").value, $("other").value].filter(Boolean).map(episodeRequest);
  const episodes = await Promise.all(requests.map((body) => ask("api/episode", body)));
  if (mine !== turn) return;
  player.load(requests, episodes, maze);
  remember();
  player.play();
}

// The maze of the moment: as it was drawn, or as the episode that is being looked at has left it.
function here() {
  const scene = player.loaded ? player.scene(0) : null;
  if (!scene) return state.maze;
  const [x, y, heading] = scene.board.pose;
  return { rows: withCode(scene.board.rows, x, y, HEADINGS[heading]), mission: state.maze.mission };
}

async function landscape() {
  player.pause();
  const mine = ++turn;
  const { energy } = await ask("api/landscape", { planner: $("planner").value, maze: here(), goal: state.goal });
  if (mine !== turn) return;
  state.heat = energy;
  $("landscape").setAttribute("aria-pressed", "true");
  say(state.goal ? `the energy of moving to each cell, with a sub-goal at ${state.goal.join(", ")}; click another cell`
    : "the energy of moving to each cell, white is low; click a cell to make it the sub-goal");
  show();
}

function toggleLandscape() {
  if ($("landscape").getAttribute("aria-pressed") === "true") {
    cool();
    state.goal = null;
    show();
    return;
  }
  state.plan = null;
  doing($("landscape"), landscape);
}

// --- what is shown -----------------------------------------------------------------------------------------------------

function show() {
  const both = Boolean($("other").value);
  $("second").hidden = !both;
  $("name-0").textContent = $("planner").value;
  $("name-1").textContent = $("other").value;
  $("player").hidden = !player.loaded;
  $("plan-view").hidden = !state.plan;
  $("hint").hidden = Boolean(state.plan);
  for (const [index, board] of boards.entries()) {
    if (index === 1 && !both) continue;
    if (player.loaded) {
      const scene = player.scene(index);
      if (scene) {
        board.draw({ ...scene.board, ...heated(index) });
        $(`told-${index}`).textContent = scene.told;
        continue;
      }
    }
    $(`told-${index}`).textContent = state.maze.mission;
    board.draw({ rows: state.maze.rows, ...planned(index), ...heated(index) });
  }
  if (state.plan) showPlan();
}

// The landscape is the first planner's.
function heated(index) {
  return index === 0 && state.heat ? { heat: state.heat, path: [], goals: state.goal ? [state.goal] : [] } : {};
}

// What a board shows of the plan that takes shape on it, at the iteration of the moment.
function planned(index) {
  const plan = index === 0 ? state.plan : state.plan && state.otherPlan;
  if (!plan) return {};
  const chosen = index === 0 ? state.candidate : plan.chosen;
  const frame = frameOf(plan.candidates[chosen]);
  const faint = plan.candidates.filter((_, number) => number !== chosen).map((candidate) => frameOf(candidate).path);
  return { path: frame.path, goals: frame.goals, faint };
}

function frameOf({ frames }) {
  return frames[Math.min(state.iteration, frames.length - 1)];
}

function showPlan() {
  const { frames } = state.plan.candidates[state.candidate], last = frames.length - 1;
  const frame = frameOf(state.plan.candidates[state.candidate]);
  $("iteration").max = last;
  $("iteration").value = Math.min(state.iteration, last);
  $("iteration-label").textContent = `Iteration ${Math.min(state.iteration, last)} of ${last}`;
  $("tokens").replaceChildren(...frame.actions.map((token, k) => {
    const [sign, name] = token === null ? ["▒", "masked"] : ACTIONS[token];
    return make("li", { class: token === null ? "" : "settled", title: `${name}, ${Math.round(100 * frame.confidence[k])} % sure` },
      make("b", { "aria-hidden": "true" }, sign), name,
      make("meter", { min: 0, max: 1, value: frame.confidence[k], "aria-label": "confidence" }));
  }));
  const energies = frames.map((one, k) => [k, one.energy]);
  $("energy").replaceChildren(frames.length > 1 ? chart("energy by iteration", energies, Math.min(state.iteration, last)) : "");
  if (listed !== state.plan) { // not at every frame: a button that is made anew loses the focus
    listed = state.plan;
    $("candidate-list").replaceChildren(...listed.candidates.map(({ energy }, index) => make("button", {
      type: "button", onclick: () => { state.candidate = index; show(); },
    }, `${energy.toFixed(2)} nats${index === listed.chosen ? " ★ chosen" : ""}`)));
  }
  for (const [index, button] of [...$("candidate-list").children].entries()) button.setAttribute("aria-pressed", String(index === state.candidate));
}
let listed = null;

// --- links -------------------------------------------------------------------------------------------------------------

const KEPT = ["task", "seed", "planner", "other", "iterations", "temperature", "order", "candidates", "execute", "slip", "chance"];

function remember() {
  const fields = Object.fromEntries(KEPT.map((id) => [id, $(id).value]));
  history.replaceState(null, "", `#${toLink({ maze: state.maze, maxSteps: state.maxSteps, fields })}`);
}

function restore() {
  const text = location.hash.slice(1), found = fromLink(text);
  if (!found) {
    if (text) say("this link cannot be read; it may be cut off", true);
    return false;
  }
  const fields = found.fields ?? {}, missing = ["planner", "other"].filter((id) => fields[id] && !offered(id, fields[id]));
  if (offered("planner", fields.planner)) $("planner").value = fields.planner;
  defaults();
  for (const [id, value] of Object.entries(fields)) if (KEPT.includes(id) && offered(id, value)) $(id).value = value;
  if (missing.length) say(`the planner '${fields[missing[0]]}' of this link is not here; choose another`, true);
  state.maxSteps = Number(found.maxSteps) || 400;
  $("mission").value = String(found.maze.mission ?? "");
  setMaze({ rows: found.maze.rows.map(String), mission: $("mission").value });
  return true;
}

function offered(id, value) {
  const { options } = $(id);
  return !options || [...options].some((option) => option.value === value);
}

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// --- trainings ---------------------------------------------------------------------------------------------------------

let curves = {}, learnt = -1;
async function watch() {
  const name = $("training").value;
  $("use-run").hidden = true;
  if (!name) {
    $("curves").replaceChildren();
    $("progress").textContent = catalogue.runs.length ? "" : "There are no runs in the served folder.";
    return;
  }
  const seen = Math.max(-1, ...Object.values(curves).flatMap((points) => points.map((p) => p[0])));
  let over = false;
  try {
    const found = await ask(`api/run?name=${encodeURIComponent(name)}&after=${seen}`);
    await refresh();
    if (name !== $("training").value) return;
    for (const [curve, points] of Object.entries(found.curves)) curves[curve] = [...(curves[curve] ?? []), ...points];
    $("progress").textContent = `${found.task}: step ${found.step} of ${found.steps}`;
    $("curves").replaceChildren(...Object.entries(curves).filter(([, points]) => points.length > 1).map(([title, points]) => chart(title, points)));
    $("use-run").hidden = !known(name);
    if (found.step > learnt && learnt >= 0 && state.plan && $("planner").value === name) doing($("plan"), plan); // what it would do now
    learnt = found.step;
    over = found.step >= found.steps;
  } catch (error) {
    $("progress").textContent = error.message;
  }
  if (!over) setTimeout(() => name === $("training").value && watch(), 5000);
}

// --- beginning ---------------------------------------------------------------------------------------------------------

function fill(select, values, words = (value) => value) {
  const { value: chosen } = select, has = [...select.options].map((option) => option.value);
  if (has.join("\n") === values.join("\n")) return;
  select.replaceChildren(...values.map((value) => make("option", { value }, words(value))));
  if (values.includes(chosen)) select.value = chosen;
}

// Planners and runs as they are now: trainings begin and get on while one looks.
async function refresh() {
  catalogue = await ask("api/catalogue");
  const names = catalogue.planners.map((planner) => planner.name);
  fill($("planner"), names);
  fill($("other"), ["", "bot", ...names], (name) => name || "nothing");
  fill($("training"), ["", ...catalogue.runs], (name) => name || "choose a run to watch");
}

function defaults() {
  const chosen = known($("planner").value);
  for (const id of ["iterations", "temperature", "order", "candidates"]) {
    const value = chosen?.defaults?.[id];
    $(id).disabled = value === null || value === undefined;
    $(id).value = typeof value === "number" ? Math.min(value, $(id).max) : (value ?? "");
  }
  $("execute").value = chosen?.execute ?? 1;
  $("execute").max = chosen?.horizon ?? 1;
}

function tools() {
  $("things").replaceChildren(...THINGS.map(([code, name]) => {
    const picture = shape("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, shape("rect", { width: 1, height: 1, class: "floor" }),
      ...thing(code.length === 2 ? code : code + $("colour").value));
    return make("button", {
      type: "button", "aria-pressed": String(code === state.tool), "data-tool": name, title: name, "aria-label": name,
      onclick: (event) => {
        state.tool = code;
        for (const button of $("things").children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      },
    }, picture);
  }));
}

async function begin() {
  await refresh();
  fill($("task"), catalogue.tasks.map((task) => task.name));
  fill($("order"), ORDERS);
  fill($("colour"), Object.keys(COLOURS), (letter) => COLOURS[letter][0]);
  $("words").replaceChildren(...catalogue.words.map((word) => make("button", {
    type: "button", onclick: () => {
      $("mission").value = `${$("mission").value} ${word}`.trim().replace(" ,", ",");
      changeMission();
      $("mission").focus();
    },
  }, word)));
  if (offered("planner", "pretrained:MazeS4G1")) $("planner").value = "pretrained:MazeS4G1";
  defaults();
  tools();
  listen();
  await watch();
  if (!restore()) await newMaze();
  document.body.dataset.ready = "yes";
}

// What would make anew what is on the page.
function current() {
  if (player.loaded) return () => doing($("run"), run);
  return state.plan ? () => doing($("plan"), plan) : () => {};
}

function changeMission() {
  setMaze({ ...state.maze, mission: $("mission").value.trim() });
}

function listen() {
  const on = (id, event, action) => $(id).addEventListener(event, action);
  on("new-maze", "click", (event) => doing(event.target, newMaze));
  on("task", "change", () => {
    const own = `pretrained:${$("task").value}`;
    if (known(own)) { $("planner").value = own; defaults(); }
    doing($("new-maze"), newMaze);
  });
  on("mission", "change", changeMission);
  on("colour", "change", tools);
  on("plan", "click", (event) => doing(event.target, plan));
  on("run", "click", (event) => doing(event.target, run));
  on("landscape", "click", toggleLandscape);
  on("planner", "change", () => { defaults(); forget(); show(); remember(); });
  on("other", "change", () => { const again = current(); forget(); show(); remember(); again(); });
  for (const id of ["iterations", "temperature", "order", "candidates", "chance"]) on(id, "change", () => { remember(); current()(); });
  for (const id of ["execute", "slip"]) on(id, "change", () => { remember(); if (player.loaded) doing($("run"), run); });
  on("iteration", "input", () => { state.iteration = number("iteration"); show(); });
  on("training", "focus", () => refresh().catch(() => {}));
  on("training", "change", () => { curves = {}; learnt = -1; watch(); });
  on("use-run", "click", () => {
    $("planner").value = $("training").value;
    defaults();
    remember();
    doing($("plan"), plan);
  });
  on("share", "click", async () => {
    remember();
    try {
      await navigator.clipboard.writeText(location.href);
      say("the link is copied: it restores maze, planner and settings");
    } catch {
      say("the address of this page is the link: it restores maze, planner and settings");
    }
  });
  on("gif", "click", (event) => doing(event.target, async () => {
    save("episode.gif", await ask("api/film", player.requests[0]));
  }));
  on("json", "click", () => save("episode.json", new Blob([JSON.stringify({ maze: player.maze, requests: player.requests, episodes: player.episodes }, null, 1)], { type: "application/json" })));
  on("play", "click", () => player.toggle());
  on("back", "click", () => player.move(-1));
  on("forward", "click", () => player.move(1));
  on("speed", "input", () => { player.speed = number("speed"); });
  on("moment", "input", () => player.to(number("moment")));
  window.addEventListener("hashchange", restore);
}

begin().catch((error) => say(error.message, true));
