// Helpers to create elements, the objects of a maze, and charts.

const SVG = "http://www.w3.org/2000/svg";

export function html(name, attributes = {}, ...children) {
  return withParts(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return withParts(document.createElementNS(SVG, name), attributes, children);
}

function withParts(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// Okabe and Ito's colors, which people with color vision deficiency can tell apart; letters stand on them as well.
export const COLORS = {
  R: ["red", "#e8743b"], G: ["green", "#22b98f"], B: ["blue", "#4a9fe0"],
  P: ["purple", "#d98cc0"], Y: ["yellow", "#f2e24a"], E: ["grey", "#bdbdbd"],
};
export const DIRECTIONS = [">>", "VV", "<<", "^^"];
export const ACTIONS = [
  ["↰", "left"], ["↱", "right"], ["↑", "forward"], ["✋", "pick up"], ["⤓", "drop"], ["⇄", "toggle"],
];

// The shapes of what a code of two characters stands for.
export function objectShapes(code) {
  const [, color] = COLORS[code[1]] ?? ["", "#bdbdbd"];
  const letter = () => svg("text", { x: 0.5, y: 0.62, class: "letter" }, code[1]);
  const solid = { fill: color, class: "object" };
  switch (code[0]) {
    case "A": return [svg("circle", { cx: 0.5, cy: 0.5, r: 0.36, ...solid }), letter()];
    case "B": return [svg("rect", { x: 0.15, y: 0.15, width: 0.7, height: 0.7, ...solid }), letter()];
    case "K": return [
      svg("path", { d: "M.5 .08a.21 .21 0 0 1 .1 .4v.4h-.1v.05h.2v-.15h-.1v-.05h.1v-.08h-.1v-.17a.21 .21 0 0 1-.1-.4z", ...solid, transform: "translate(-.05 0)" }),
      svg("circle", { cx: 0.45, cy: 0.28, r: 0.22, ...solid }),
      svg("text", { x: 0.45, y: 0.39, class: "letter" }, code[1]),
    ];
    case "D": return [
      svg("rect", { x: 0.08, y: 0.08, width: 0.84, height: 0.84, ...solid }),
      svg("circle", { cx: 0.78, cy: 0.5, r: 0.07, fill: "#111" }), letter(),
    ];
    case "L": return [
      svg("rect", { x: 0.08, y: 0.08, width: 0.84, height: 0.84, ...solid }),
      svg("path", { d: "M.66 .5v-.12a.1 .1 0 0 1 .2 0v.12m-.24 0h.28v.2h-.28z", fill: "none", stroke: "#111", "stroke-width": 0.06 }),
      letter(),
    ];
    case "O": return [
      svg("rect", { x: 0.06, y: 0.06, width: 0.2, height: 0.88, ...solid }),
      svg("rect", { x: 0.06, y: 0.06, width: 0.88, height: 0.88, fill: "none", stroke: color, "stroke-width": 0.06 }),
      svg("text", { x: 0.6, y: 0.62, class: "letter on-floor" }, code[1]),
    ];
    case "#": return [svg("rect", { width: 1, height: 1, class: "wall" })];
    default: return DIRECTIONS.includes(code) ? [agent(DIRECTIONS.indexOf(code))] : [];
  }
}

export function agent(direction) {
  return svg("path", { d: "M.14 .12L.9 .5L.14 .88L.3 .5z", class: "agent", transform: `rotate(${90 * direction} .5 .5)` });
}

export function star(x, y, className, size = 0.42) {
  const corners = Array.from({ length: 10 }, (_, k) => {
    const radius = k % 2 ? size * 0.42 : size, angle = Math.PI * (k / 5 - 0.5);
    return `${x + radius * Math.cos(angle)},${y + radius * Math.sin(angle)}`;
  });
  return svg("polygon", { points: corners.join(" "), class: className });
}

// A line chart of points [[x, y], ...], with a dot at the point of index `dot`.
export function chart(title, points, dot = null) {
  const width = 320, height = 120, left = 38, bottom = 16;
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [Math.min(0, ...ys), Math.max(...ys)];
  const at = ([x, y]) => [
    left + ((x - x0) / (x1 - x0 || 1)) * (width - left - 8), 6 + (1 - (y - y0) / (y1 - y0 || 1)) * (height - bottom - 12),
  ];
  const text = (x, y, anchor, content) => svg("text", { x, y, "text-anchor": anchor }, content);
  const base = height - bottom - 6;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": title },
    svg("line", { x1: left, y1: base, x2: width, y2: base }),
    svg("line", { x1: left, y1: 6, x2: left, y2: base }),
    text(left - 4, 14, "end", y1.toPrecision(3)), text(left - 4, base, "end", y0.toPrecision(2)),
    text(left, height - 4, "start", title), text(width - 2, height - 4, "end", String(x1)),
    svg("path", { d: `M${points.map((p) => at(p).join(",")).join("L")}` }));
  if (dot !== null && points[dot]) {
    const [cx, cy] = at(points[dot]);
    picture.append(svg("circle", { cx, cy, r: 4 }));
  }
  return picture;
}
