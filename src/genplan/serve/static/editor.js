// The maze: loaded from a task or drawn, and checked after every change.

import { fetchApi } from "./api.js";
import { DIRECTIONS, html, objectShapes, svg } from "./draw.js";
import { codeAt, describeCell, findPose, withCode } from "./maze.js";
import { $, readNumber, runTask, saveLink, showMessage, state } from "./page.js";
import { landscape } from "./planning.js";
import { clearResults, mazeViews, show } from "./view.js";

const OBJECTS = [
  ["##", "wall"], ["..", "floor"], ["D", "closed door"], ["O", "open door"], ["L", "locked door"],
  ["K", "key"], ["A", "ball"], ["B", "box"], [">>", "agent"],
];
let lastCheck = 0;

mazeViews[0].onpick = pickCell;
mazeViews[0].onmove = (x, y) => showMessage(describeCell(state.maze.rows, x, y));

export async function loadMaze() {
  const requestId = ++state.requestId;
  const { maze, max_steps: maxSteps } = await fetchApi("api/maze", { task: $("task").value, seed: readNumber("seed") ?? 0 });
  if (requestId !== state.requestId) return;
  state.maxSteps = maxSteps;
  $("mission").value = maze.mission;
  setMaze(maze);
}

export function setMaze(maze) {
  state.maze = maze;
  clearResults();
  show();
  saveLink();
  checkMaze();
}

export function changeMission() {
  setMaze({ ...state.maze, mission: $("mission").value.trim() });
}

function pickCell(x, y) {
  if ($("landscape").getAttribute("aria-pressed") === "true") {
    state.goal = [x, y];
    runTask($("landscape"), landscape);
    return;
  }
  const { rows } = state.maze, onEdge = x === 0 || y === 0 || y === rows.length - 1 || x === rows[0].length / 2 - 1;
  if (onEdge) {
    showMessage("the edge of a maze is a wall");
    return;
  }
  let code = state.tool.length === 2 ? state.tool : state.tool + $("color").value;
  let changed = rows;
  if (DIRECTIONS.includes(code)) {
    const pose = findPose(rows);
    if (pose && pose[0] === x && pose[1] === y) code = DIRECTIONS[(pose[2] + 1) % 4]; // turn it
    else if (pose) changed = withCode(changed, pose[0], pose[1], "..");
  } else if (DIRECTIONS.includes(codeAt(rows, x, y))) {
    showMessage("the agent is here; move it to another cell first");
    return;
  }
  setMaze({ ...state.maze, rows: withCode(changed, x, y, code) });
}

async function checkMaze() {
  const check = ++lastCheck;
  const result = await fetchApi("api/check", state.maze).catch((error) => ({ possible: false, reason: error.message }));
  if (check !== lastCheck) return;
  $("check").textContent = result.possible ? "This maze can be solved." : result.reason;
  $("check").classList.toggle("bad", !result.possible);
  for (const id of ["plan", "run", "landscape"]) $(id).disabled = !result.possible;
}

export function showTools() {
  $("objects").replaceChildren(...OBJECTS.map(([code, name]) => {
    const picture = svg("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, svg("rect", { width: 1, height: 1, class: "floor" }),
      ...objectShapes(code.length === 2 ? code : code + $("color").value));
    return html("button", {
      type: "button", "aria-pressed": String(code === state.tool), "data-tool": name, title: name, "aria-label": name,
      onclick: (event) => {
        state.tool = code;
        for (const button of $("objects").children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      },
    }, picture);
  }));
}
