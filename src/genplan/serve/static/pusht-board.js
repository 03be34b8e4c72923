// The board of PushT: the block's place, the block, the agent, and plans drawn over them. A state is x and y of the agent,
// x, y and angle of the block, in pixels and radians.

import { svg } from "./draw.js";

const SIZE = 512, RADIUS = 15, STEP = 8, TURN = Math.PI / 36;
const PLACE = [256, 256, Math.PI / 4];
const OUTLINE = [[-60, 0], [60, 0], [60, 30], [15, 30], [15, 120], [-15, 120], [-15, 30], [-60, 30]]; // of the block
const CENTER = [0, 45], HANDLE = [0, 155]; // in the block's own frame: around what it turns, and what is dragged to turn it
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const limited = (value) => Math.min(Math.max(value, 0), SIZE);

function turnedPoint([x, y], angle) {
  return [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)];
}

function center([, , x, y, angle]) {
  const [dx, dy] = turnedPoint(CENTER, angle);
  return [x + dx, y + dy];
}

// Inside the board, whatever an episode did or a link says.
export function bounded([agentX, agentY, x, y, angle]) {
  const turn = 2 * Math.PI;
  return [limited(agentX), limited(agentY), limited(x), limited(y), ((angle % turn) + turn) % turn];
}

function moved([agentX, agentY, x, y, angle], part, dx, dy) {
  return bounded(part === "agent" ? [agentX + dx, agentY + dy, x, y, angle] : [agentX, agentY, x + dx, y + dy, angle]);
}

// The block turns around its center of mass.
function turned(state, angle) {
  const [x, y] = center(state), [dx, dy] = turnedPoint(CENTER, angle);
  return bounded([state[0], state[1], x - dx, y - dy, angle]);
}

const pose = ([x, y, angle]) => `translate(${x} ${y}) rotate(${(angle * 180) / Math.PI})`;
const outline = (attributes) => svg("polygon", { points: OUTLINE.join(" "), ...attributes });

export class Board {
  // onmove: called with the state that a visitor makes; ondone: when the visitor lets go
  constructor(container, { onmove, ondone }) {
    Object.assign(this, { onmove, ondone, state: [256, 400, 256, 300, 0], dragged: null });
    const part = (name, label, ...shapes) => svg("g", { class: "part", "data-part": name, tabindex: 0, role: "application", "aria-label": label, "aria-describedby": "help" }, ...shapes);
    this.block = part("block", "block", outline({ class: "tee" }), svg("line", { y1: 120, y2: HANDLE[1], class: "stem" }),
      svg("circle", { cy: HANDLE[1], r: 11, class: "handle", "data-part": "handle" }));
    this.agent = part("agent", "agent", svg("circle", { r: RADIUS, class: "disk" }));
    this.plans = svg("g", { class: "plans" });
    this.picture = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": "board" },
      svg("rect", { width: SIZE, height: SIZE, class: "ground" }), svg("rect", { x: 5, y: 5, width: 501, height: 501, class: "edge" }),
      outline({ class: "place", transform: pose(PLACE) }), this.block, this.plans, this.agent);
    container.replaceChildren(this.picture);
    this.listen();
  }

  // chunk: the actions of the plan that is executed; others: actions of further plans
  draw(state, chunk = [], others = []) {
    this.state = state;
    const from = state.slice(0, 2), points = [from, ...chunk];
    this.block.setAttribute("transform", pose(state.slice(2)));
    this.agent.setAttribute("transform", `translate(${from.join(" ")})`);
    const fading = (k) => 1 - (0.75 * k) / Math.max(chunk.length, 1);
    this.plans.replaceChildren(
      ...others.map((other) => svg("polyline", { points: [from, ...other].join(" "), class: "other" })),
      ...(chunk.length ? [svg("polyline", { points: points.join(" "), class: "halo" })] : []),
      ...chunk.map(([x2, y2], k) => svg("line", { x1: points[k][0], y1: points[k][1], x2, y2, class: "path", opacity: fading(k) })),
      ...chunk.map(([cx, cy], k) => svg("circle", { cx, cy, r: 4.5, class: "dot", opacity: fading(k) })));
  }

  listen() {
    this.picture.addEventListener("pointerdown", (event) => this.take(event));
    this.picture.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel"]) this.picture.addEventListener(end, () => this.release());
    this.picture.addEventListener("keydown", (event) => this.press(event));
    this.block.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.change(turned(this.state, this.state[4] + Math.sign(event.deltaY) * TURN));
      this.ondone();
    }, { passive: false });
  }

  at({ clientX, clientY }) {
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(this.picture.getScreenCTM().inverse());
    return [x, y];
  }

  take(event) {
    const part = event.target.closest("[data-part]")?.dataset.part;
    if (!part || event.button !== 0) return;
    this.dragged = { part, from: this.at(event), state: this.state };
    this.picture.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (!this.dragged) return;
    const { part, from, state } = this.dragged, [x, y] = this.at(event), [middleX, middleY] = center(state);
    if (part === "handle") this.change(turned(state, Math.atan2(y - middleY, x - middleX) - Math.PI / 2));
    else this.change(moved(state, part, x - from[0], y - from[1]));
  }

  release() {
    if (this.dragged) this.ondone();
    this.dragged = null;
  }

  press(event) {
    const { part } = event.target.dataset, fine = event.shiftKey ? 8 : 1, sign = { q: -1, e: 1 }[event.key.toLowerCase()];
    if (part && event.key in KEYS) {
      const [dx, dy] = KEYS[event.key].map((one) => (one * STEP) / fine);
      this.change(moved(this.state, part, dx, dy));
    } else if (part === "block" && sign) this.change(turned(this.state, this.state[4] + (sign * TURN) / fine));
    else return;
    event.preventDefault();
    this.ondone();
  }

  change(state) {
    this.draw(state);
    this.onmove(state);
  }
}
