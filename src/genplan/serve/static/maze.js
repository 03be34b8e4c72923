// A maze as a picture: its objects, the agent, a path, goals, and an energy landscape.

import { agent, COLORS, DIRECTIONS, objectShapes, star, svg } from "./draw.js";

const NAMES = { "#": "wall", A: "ball", B: "box", K: "key", D: "closed door", O: "open door", L: "locked door" };
const MAX_ENERGY = 9.2; // nats of the darkest cell of a landscape

export function codeAt(rows, x, y) {
  return rows[y].slice(2 * x, 2 * x + 2);
}

export function withCode(rows, x, y, code) {
  return rows.map((row, j) => (j === y ? row.slice(0, 2 * x) + code + row.slice(2 * x + 2) : row));
}

export function findPose(rows) {
  for (let y = 0; y < rows.length; y++) {
    for (let x = 0; x < rows[y].length / 2; x++) {
      const direction = DIRECTIONS.indexOf(codeAt(rows, x, y));
      if (direction >= 0) return [x, y, direction];
    }
  }
  return null;
}

export function describeCell(rows, x, y) {
  const code = codeAt(rows, x, y);
  const object = DIRECTIONS.includes(code) ? "agent" : NAMES[code[0]] ?? "nothing";
  const color = object === "wall" || object === "nothing" || object === "agent" ? "" : `${COLORS[code[1]]?.[0] ?? ""} `;
  return `column ${x}, row ${y}: ${color}${object}`;
}

export class MazeView {
  constructor(container) {
    this.container = container;
    this.onpick = null; // called with x, y of a cell that is clicked or selected by keyboard
    this.onmove = null; // called with x, y of the keyboard's cursor
    this.cursor = null;
    this.last = null;
  }

  // rows: text; pose: the agent, if it is not where the text has it; states, goals: of a plan; heat: energies per cell;
  // alternatives: states of the other candidates; expected: a planned pose that was not reached; executed: what the
  // actions do, beside `states`; arrival: after how many actions the episode succeeds
  draw(content = this.last) {
    this.last = content;
    const { rows, pose = findPose(rows), goals = [], heat = null, alternatives = [], expected = null } = content;
    const { states = [], executed = [], arrival = null } = content, end = arrival === null ? states.length : arrival + 1;
    const width = rows[0].length / 2, height = rows.length;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "application", tabindex: this.onpick ? 0 : null, "aria-label": "maze" });
    for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) picture.append(drawCell(x, y, codeAt(rows, x, y), heat?.[y]?.[x]));
    for (const alternative of alternatives) picture.append(line(alternative, 0.25));
    if (states.length > 1) {
      const behind = states.slice(end - 1);
      picture.append(line(states, 1, "halo"), line(behind, 1, "path behind"), ...dots(behind, "dot behind"));
      picture.append(line(states.slice(0, end), 1), ...dots(states.slice(0, end)));
    }
    for (const step of stepsApart(states, executed)) {
      picture.append(line([executed[Math.max(step - 1, 0)], executed[step]], 1, "path executed"), ring(executed[step]));
    }
    for (const [x, y] of goals) picture.append(star(x + 0.5, y + 0.5, "halo thin"), star(x + 0.5, y + 0.5, "star"));
    if (expected) picture.append(ring(expected, 0.45, "star", "0.15"));
    if (pose) picture.append(svg("g", { transform: `translate(${pose[0]} ${pose[1]})` }, agent(pose[2])));
    if (this.cursor && this.onpick) {
      this.cursor = [Math.min(this.cursor[0], width - 1), Math.min(this.cursor[1], height - 1)]; // the maze may be smaller now
      const box = { x: this.cursor[0] + 0.06, y: this.cursor[1] + 0.06, width: 0.88, height: 0.88 };
      picture.append(svg("rect", { ...box, class: "halo" }), svg("rect", { ...box, class: "cursor" }));
    }
    if (this.onpick) this.listen(picture, width, height);
    const focused = this.container.contains(document.activeElement);
    this.container.replaceChildren(picture);
    if (focused) picture.focus({ preventScroll: true });
  }

  listen(picture, width, height) {
    picture.addEventListener("click", (event) => {
      const cell = event.target.closest("[data-x]");
      if (cell) this.pick(Number(cell.dataset.x), Number(cell.dataset.y));
    });
    picture.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const [x, y] = this.cursor ?? [0, 0];
      if (event.key in moves) {
        const [dx, dy] = moves[event.key];
        this.cursor = [Math.min(Math.max(x + dx, 0), width - 1), Math.min(Math.max(y + dy, 0), height - 1)];
        this.draw();
        this.onmove?.(...this.cursor);
      } else if (event.key === "Enter" || event.key === " ") {
        this.pick(x, y);
      } else return;
      event.preventDefault();
    });
  }

  pick(x, y) {
    this.cursor = [x, y];
    this.onpick(x, y);
  }
}

function drawCell(x, y, code, energy) {
  const cell = svg("g", { transform: `translate(${x} ${y})`, "data-x": x, "data-y": y },
    svg("rect", { width: 1, height: 1, class: "floor" }));
  if (energy !== null && energy !== undefined) {
    const fraction = Math.min(energy / MAX_ENERGY, 1);
    const [red, green, blue] = [255 - 215 * fraction, 250 - 220 * fraction, 235 - 130 * fraction].map(Math.round);
    cell.append(svg("rect", { width: 1, height: 1, fill: `rgb(${red} ${green} ${blue})` }));
  }
  if (!DIRECTIONS.includes(code)) cell.append(...objectShapes(code));
  return cell;
}

function line(states, opacity, className = "path") {
  const points = states.map(([x, y]) => `${x + 0.5},${y + 0.5}`);
  return svg("polyline", { points: points.join(" "), class: className, opacity });
}

function dots(states, className = "dot") {
  return states.slice(1).map((pose) => ring(pose, 0.13, className));
}

function ring([x, y], r = 0.24, className = "path executed", dashes = null) {
  return svg("circle", { cx: x + 0.5, cy: y + 0.5, r, class: className, "stroke-dasharray": dashes });
}

// At which steps the actions of a plan do not lead where it says.
export function stepsApart(states, executed) {
  return executed.map((_, step) => step).filter((step) => states[step]?.some((value, k) => value !== executed[step][k]));
}
