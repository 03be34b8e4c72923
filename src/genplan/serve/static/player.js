// Episodes being played: one or two side by side, with what was expected beside what happened.

import { withCode } from "./board.js";
import { ACTIONS, HEADINGS } from "./draw.js";

const $ = (id) => document.getElementById(id);

export class Player {
  constructor({ onmoment }) {
    this.onmoment = onmoment;
    this.speed = 6;
    this.clear();
  }

  clear() {
    this.pause();
    Object.assign(this, { requests: [], episodes: [], maze: null, moment: 0 });
  }

  get loaded() {
    return this.episodes.length > 0;
  }

  get last() {
    return Math.max(0, ...this.episodes.map((episode) => episode.steps.length));
  }

  load(requests, episodes, maze) {
    this.pause();
    Object.assign(this, { requests, episodes, maze, moment: 0 });
    $("moment").max = this.last;
    this.to(0);
  }

  to(moment) {
    this.moment = Math.min(Math.max(moment, 0), this.last);
    $("moment").value = this.moment;
    this.onmoment();
  }

  move(by) {
    this.pause();
    this.to(this.moment + by);
  }

  play() {
    clearTimeout(this.timer);
    if (this.moment >= this.last) this.to(0);
    $("play").textContent = "Pause";
    const next = () => {
      this.to(this.moment + 1);
      if (this.moment >= this.last) this.pause();
      else this.timer = setTimeout(next, 1000 / this.speed);
    };
    this.timer = setTimeout(next, 1000 / this.speed);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    $("play").textContent = "Play";
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  // What a board shows at this moment, and a line under it.
  scene(index) {
    const episode = this.episodes[index];
    if (!episode) return null;
    const done = Math.min(this.moment, episode.steps.length), over = this.moment >= episode.steps.length;
    let rows = this.maze.rows.map((row) => HEADINGS.reduce((text, agent) => text.split(/(..)/).map((code) => (code === agent ? ".." : code)).join(""), row));
    for (const step of episode.steps.slice(0, done)) {
      for (const { place: [x, y], code } of step.changes) rows = withCode(rows, x, y, code);
    }
    const now = episode.steps[done - 1], next = episode.steps[done];
    const pose = now ? now.pose : episode.start;
    const plan = episode.plans[(next ?? now)?.plan ?? 0];
    const part = episode.steps.slice(0, done).filter((step) => next && step.plan === next.plan).length;
    const surprised = now?.expected && (now.expected[0] !== pose[0] || now.expected[1] !== pose[1] || now.expected[2] !== pose[2]);
    const bot = episode.bot_steps === null ? "" : `, the bot needs ${episode.bot_steps}`;
    const verdict = `${episode.success ? "done" : "not done"} after ${episode.steps.length} steps${bot}`;
    const words = next ? `step ${done}: ${ACTIONS[next.action][1]}` : "";
    const held = now?.carrying ? `, carrying the ${now.carrying}` : "";
    const odd = surprised ? ", not where it expected to be" : "";
    return {
      board: { rows, pose, path: over || !plan ? [] : [pose, ...plan.path.slice(part + 1)], goals: over || !plan ? [] : plan.goals, expected: surprised ? now.expected : null },
      told: over ? verdict : words + held + odd,
    };
  }
}
