// Lines over the last hour. Each line has its own dash and stands in the legend: colour alone tells nothing.
"use strict";
const Charts = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const HOUR = 3600e3, WIDTH = 600, HEIGHT = 190, LEFT = 52, BOTTOM = 20, TOP = 8;

  function make(name, attributes, parent) {
    const node = document.createElementNS(NS, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (parent) parent.append(node);
    return node;
  }
  function short(value) {
    const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
    for (const [size, unit] of units) if (value >= size) return Number((value / size).toPrecision(3)) + unit;
    return String(Number(value.toFixed(value >= 100 ? 0 : value >= 1 ? 1 : 2)));
  }
  // The step between two lines of the grid, so that four of them reach the value: 1, 2 or 5 of a power of ten.
  function stepOf(value, whole) {
    const least = Math.max(value / 4, whole ? 1 : 0.05);
    const power = 10 ** Math.floor(Math.log10(least));
    for (const factor of [1, 2, 5, 10]) if (least <= factor * power * 1.0001) return factor * power;
    return 10 * power;
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.names = figure.dataset.chart.split("|");
      this.labels = figure.dataset.labels.split("|");
      this.unit = figure.dataset.unit;
      this.series = this.names.map(() => []);
      this.names.length > 1 && this.legend();
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => this.tip && this.tip.remove());
    }
    legend() {
      const box = this.figure.querySelector(".legend");
      this.labels.forEach((label, index) => {
        const item = document.createElement("span");
        const image = make("svg", { viewBox: "0 0 26 8" }, item);
        make("line", { x1: 0, x2: 26, y1: 4, y2: 4, class: "c" + index }, image);
        item.append(label);
        box.append(item);
      });
    }
    async load() {
      await Promise.all(this.names.map(async (name, index) => {
        const answer = await fetch("/api/history?name=" + encodeURIComponent(name));
        if (answer.ok) this.series[index] = (await answer.json()).points;
      }));
      this.draw();
    }
    add(name, at, value) {
      const index = this.names.indexOf(name);
      if (index < 0) return;
      const points = this.series[index];
      if (points.length && points[points.length - 1][0] >= at) return;
      points.push([at, value]);
      while (points.length && points[0][0] < at - HOUR) points.shift();
      this.draw();
    }
    draw() {
      const all = this.series.flat();
      this.plot.replaceChildren();
      if (all.length < 2) {
        const none = document.createElement("div");
        none.className = "none";
        none.textContent = this.figure.dataset.empty;
        this.plot.append(none);
        return;
      }
      const width = Math.max(280, this.plot.clientWidth || WIDTH);
      this.last = Math.max(...all.map((point) => point[0]));
      this.first = Math.max(this.last - HOUR, Math.min(Math.min(...all.map((point) => point[0])), this.last - 60e3));
      const largest = Math.max(...all.map((point) => point[1]));
      const step = stepOf(largest, all.every((point) => Number.isInteger(point[1])));
      const lines = Math.max(1, Math.ceil(largest / step - 0.0001));
      this.top = step * lines;
      this.x = (at) => LEFT + (width - LEFT - 8) * (at - this.first) / (this.last - this.first);
      this.y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / this.top);
      const svg = make("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" }, this.plot);
      for (let part = 0; part <= lines; part++) {
        const value = step * part, y = this.y(value);
        make("line", { x1: LEFT, x2: width - 8, y1: y, y2: y, class: "grid" }, svg);
        const text = make("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, svg);
        text.textContent = short(value);
      }
      const count = width > 500 ? 5 : 3;
      for (let part = 0; part < count; part++) {
        const at = this.first + (this.last - this.first) * part / (count - 1);
        const anchor = part === 0 ? "start" : part === count - 1 ? "end" : "middle";
        const text = make("text", { x: this.x(at), y: HEIGHT - 4, "text-anchor": anchor }, svg);
        text.textContent = Times.clock(at);
      }
      this.series.forEach((points, index) => {
        const shown = points.filter((point) => point[0] >= this.first);
        if (shown.length < 2) return;
        const line = shown.map((point) => `${this.x(point[0]).toFixed(1)},${this.y(point[1]).toFixed(1)}`).join("L");
        const base = this.y(0);
        make("path", { d: `M${this.x(shown[0][0])},${base}L${line}L${this.x(shown[shown.length - 1][0])},${base}Z`, class: "area c" + index }, svg);
        make("path", { d: "M" + line, class: "line c" + index }, svg);
      });
      const newest = this.labels.map((label, index) => {
        const points = this.series[index];
        return points.length ? `${label}: ${short(points[points.length - 1][1])} ${this.unit}` : "";
      }).filter(Boolean).join("; ");
      this.plot.setAttribute("aria-label", `${this.figure.querySelector("figcaption").textContent}. ${newest}`);
    }
    point(event) {
      if (!this.x) return;
      const box = this.plot.getBoundingClientRect();
      const lines = [];
      let at = null;
      this.series.forEach((points, index) => {
        let best = null;
        for (const point of points) {
          const distance = Math.abs(this.x(point[0]) - (event.clientX - box.left));
          if (best === null || distance < best[0]) best = [distance, point];
        }
        if (best) { at = best[1][0]; lines.push(`${this.labels[index]} ${short(best[1][1])} ${this.unit}`); }
      });
      if (at === null) return;
      if (!this.tip) { this.tip = document.createElement("div"); this.tip.className = "tip"; }
      this.tip.textContent = `${Times.clock(at)} · ${lines.join(" · ")}`;
      this.plot.append(this.tip);
      const left = Math.min(Math.max(0, event.clientX - box.left + 10), box.width - this.tip.offsetWidth);
      this.tip.style.left = left + "px";
    }
  }
  return { Chart, all: [] };
})();

// Times in the visitor's zone or in UTC, as the button in the head says.
const Times = (() => {
  const pad = (value, length = 2) => String(value).padStart(length, "0");
  const isUtc = () => document.documentElement.dataset.zone === "utc";
  function parts(ms, utc) {
    const d = new Date(ms);
    return utc
      ? [d.getUTCFullYear(), d.getUTCMonth() + 1, d.getUTCDate(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds(), d.getUTCMilliseconds()]
      : [d.getFullYear(), d.getMonth() + 1, d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds(), d.getMilliseconds()];
  }
  function text(ms, utc) {
    const [year, month, day, hour, minute, second, milli] = parts(ms, utc);
    return `${year}-${pad(month)}-${pad(day)} ${pad(hour)}:${pad(minute)}:${pad(second)}.${pad(milli, 3)}`;
  }
  return {
    isUtc,
    text,
    clock(ms) { const [, , , hour, minute, second] = parts(ms, isUtc()); return `${pad(hour)}:${pad(minute)}:${pad(second)}`; },
    show(root) {
      for (const node of root.querySelectorAll("time[data-ms]")) {
        const ms = Number(node.dataset.ms);
        node.textContent = isUtc() ? text(ms, true) + " UTC" : text(ms, false);
        node.title = `${text(ms, false)} / ${text(ms, true)} UTC`;
      }
    },
  };
})();
