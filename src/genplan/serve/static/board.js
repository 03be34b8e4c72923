// A maze as a picture: what stands in it, the agent, a path, goals, and an energy landscape.

import { agent, COLOURS, HEADINGS, shape, star, thing } from "./draw.js";

const NAMES = { "#": "wall", A: "ball", B: "box", K: "key", D: "closed door", O: "open door", L: "locked door" };

export function codeAt(rows, x, y) {
  return rows[y].slice(2 * x, 2 * x + 2);
}

export function withCode(rows, x, y, code) {
  return rows.map((row, j) => (j === y ? row.slice(0, 2 * x) + code + row.slice(2 * x + 2) : row));
}

export function poseOf(rows) {
  for (let y = 0; y < rows.length; y++) {
    for (let x = 0; x < rows[y].length / 2; x++) {
      const heading = HEADINGS.indexOf(codeAt(rows, x, y));
      if (heading >= 0) return [x, y, heading];
    }
  }
  return null;
}

export function describe(rows, x, y) {
  const code = codeAt(rows, x, y);
  const what = HEADINGS.includes(code) ? "agent" : NAMES[code[0]] ?? "nothing";
  const colour = what === "wall" || what === "nothing" || what === "agent" ? "" : `${COLOURS[code[1]]?.[0] ?? ""} `;
  return `column ${x}, row ${y}: ${colour}${what}`;
}

export class Board {
  constructor(place, { onpick = null } = {}) {
    this.place = place;
    this.onpick = onpick;
    this.cursor = null;
    this.last = null;
  }

  // rows: text; pose: the agent, if it is not where the text has it; path, goals: of a plan; heat: energies per cell
  draw(state = this.last) {
    this.last = state;
    const { rows, pose = poseOf(rows), path = [], goals = [], heat = null, faint = [], expected = null } = state;
    const width = rows[0].length / 2, height = rows.length;
    const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "application", tabindex: this.onpick ? 0 : null, "aria-label": "maze" });
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const cell = shape("g", { transform: `translate(${x} ${y})`, "data-x": x, "data-y": y },
          shape("rect", { width: 1, height: 1, class: "floor" }));
        const warm = heat?.[y]?.[x];
        if (warm !== null && warm !== undefined) {
          const share = Math.min(warm / 9.2, 1);
          cell.append(shape("rect", { width: 1, height: 1, fill: `rgb(${Math.round(255 - 215 * share)} ${Math.round(250 - 220 * share)} ${Math.round(235 - 130 * share)})` }));
        }
        const code = codeAt(rows, x, y);
        if (!HEADINGS.includes(code)) cell.append(...thing(code));
        picture.append(cell);
      }
    }
    for (const other of faint) picture.append(line(other, 0.25));
    if (path.length > 1) picture.append(line(path, 1, "halo"), line(path, 1), ...dots(path));
    for (const [x, y] of goals) picture.append(star(x + 0.5, y + 0.5, "halo thin"), star(x + 0.5, y + 0.5, "star"));
    if (expected) picture.append(shape("circle", { cx: expected[0] + 0.5, cy: expected[1] + 0.5, r: 0.45, class: "star", "stroke-dasharray": "0.15" }));
    if (pose) picture.append(shape("g", { transform: `translate(${pose[0]} ${pose[1]})` }, agent(pose[2])));
    if (this.cursor && this.onpick) {
      this.cursor = [Math.min(this.cursor[0], width - 1), Math.min(this.cursor[1], height - 1)]; // the maze may be smaller now
      const place = { x: this.cursor[0] + 0.06, y: this.cursor[1] + 0.06, width: 0.88, height: 0.88 };
      picture.append(shape("rect", { ...place, class: "halo" }), shape("rect", { ...place, class: "cursor" }));
    }
    if (this.onpick) this.listen(picture, width, height);
    const focused = this.place.contains(document.activeElement);
    this.place.replaceChildren(picture);
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

function line(path, opacity, kind = "path") {
  const places = path.map(([x, y]) => `${x + 0.5},${y + 0.5}`);
  return shape("polyline", { points: places.join(" "), class: kind, opacity });
}

function dots(path) {
  return path.slice(1).map(([x, y]) => shape("circle", { cx: x + 0.5, cy: y + 0.5, r: 0.13, class: "dot" }));
}
