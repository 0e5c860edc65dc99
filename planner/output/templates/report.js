"use strict";
(() => {
  const LEFT = 62, RIGHT = 10, TOP = 10, BOTTOM = 26, HEIGHT = 260, LANE = 16, FULL = 1000;
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, attributes, text) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const html = (tag, text, className) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const short = (number) => {
    for (const [scale, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(number) >= scale) return Number((number / scale).toPrecision(3)) + " " + letter;
    return String(Number(number.toPrecision(3)));
  };
  const label = (number, unit) => {
    if (unit === "percent") return Number((number * 100).toPrecision(4)) + "%";
    if (unit === "usd") {
      const size = Math.abs(number);
      return (number < 0 ? "−$" : "$") + (size < 1e3 ? Number(size.toPrecision(4)) : short(size).replace(" ", ""));
    }
    return short(number);
  };
  const niceTicks = (low, high, wanted) => {
    if (!(high > low)) return [low];
    const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5, 10].find((m) => m * power >= raw * 0.999) || 10);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
    return ticks;
  };
  const logTicks = (low, high) => {
    const steps = high - low < 3.5 ? [1, 2, 5] : [1], ticks = [];
    for (let p = Math.floor(low); p <= Math.ceil(high); p++)
      for (const m of steps) {
        const t = Math.log10(m) + p;
        if (t >= low - 1e-9 && t <= high + 1e-9) ticks.push(t);
      }
    return ticks;
  };
  const day = (start, offset) => new Date(Date.parse(start + "T00:00:00Z") + offset * 864e5);

  const hidden = new Set();
  const zoom = { from: 0, to: null };
  const charts = [];
  // A chart is drawn when its room is known or another: once for a window that changes, a part that is opened or a
  // section that comes in sight. Nothing is measured by asking, which would have the browser lay the page out at once.
  const rooms = new ResizeObserver((sizes) => {
    for (const size of sizes) charts.find((chart) => chart.plot === size.target)?.fit(size.contentRect.width);
  });

  class Chart {
    constructor(figure) {
      const data = figure.dataset;
      this.figure = figure;
      this.unit = data.unit;
      this.start = data.start;
      this.days = Number(data.days);
      this.low = Number(data.low);
      this.high = Number(data.high);
      this.log = data.log === "1";
      this.stacked = data.stacked === "1";
      this.lanes = Number(data.lanes);
      this.frame = figure.querySelector(".frame");
      this.marks = figure.querySelector(".marks");
      this.lane = figure.querySelector(".lanes");
      this.axes = figure.querySelector(".axes");
      this.plot = figure.querySelector(".plot");
      this.tip = figure.querySelector(".tip");
      this.cursor = make("line", { class: "cursor", visibility: "hidden" });
      this.choice = make("rect", { class: "choice", visibility: "hidden" });
      this.frame.append(this.choice, this.cursor);
      this.series = [...this.marks.querySelectorAll("g")].map((group) => ({
        group,
        name: group.dataset.series,
        css: group.getAttribute("class"),
        x: group.dataset.x ? group.dataset.x.split(" ").map(Number) : [],
        v: group.dataset.v ? group.dataset.v.split(" ").map((word) => (word === "-" ? null : Number(word))) : [],
      }));
      this.events = this.lane
        ? [...this.lane.querySelectorAll("rect")].map((rect) => ({
            x: Number(rect.getAttribute("x")), width: Number(rect.getAttribute("width")), label: rect.dataset.label,
          }))
        : [];
      this.index = null;
      this.room = 0;
      this.listen();
    }
    fit(room) {
      if (Math.round(room) === this.room || room < 1) return; // folded: what the page was written with stands
      this.room = Math.round(room);
      this.draw();
    }
    listen() {
      const plot = this.plot;
      plot.addEventListener("pointermove", (event) => this.move(event));
      plot.addEventListener("pointerleave", () => { if (this.from === undefined) this.leave(); });
      plot.addEventListener("pointerdown", (event) => {
        if (event.button !== 0 || event.pointerType === "touch") return;
        this.from = this.at(event);
        plot.setPointerCapture(event.pointerId);
      });
      plot.addEventListener("pointerup", (event) => this.release(event));
      plot.addEventListener("pointercancel", () => { this.from = undefined; this.choice.setAttribute("visibility", "hidden"); });
      plot.addEventListener("dblclick", () => setZoom(0, null));
      plot.addEventListener("keydown", (event) => this.key(event));
      plot.addEventListener("blur", () => this.leave());
      for (const button of this.figure.querySelectorAll(".zoom"))
        button.addEventListener("click", () => this.zoomBy(button.dataset.zoom));
      for (const button of this.figure.querySelectorAll(".toggle"))
        button.addEventListener("click", () => toggle(button.dataset.series));
    }
    window() {
      const to = Math.min(zoom.to === null ? this.days : zoom.to, this.days);
      const from = Math.min(zoom.from, to - 1);
      return [Math.max(0, from), to];
    }
    visible() { return this.series.filter((one) => !hidden.has(one.name)); }
    place(value) {
      const scaled = this.log ? (value > 0 ? Math.log10(value) : this.low) : value;
      return FULL * (1 - (scaled - this.low) / (this.high - this.low));
    }
    at(event) {
      const box = this.plot.getBoundingClientRect(), [from, to] = this.window();
      const share = (event.clientX - box.left - LEFT) / Math.max(1, box.width - LEFT - RIGHT);
      return from + Math.max(0, Math.min(1, share)) * (to - from);
    }
    restack() {
      const shown = this.visible();
      if (!shown.length) return;
      let below = shown[0].x.map(() => 0);
      for (const one of shown) {
        const above = below.map((base, i) => base + (one.v[i] || 0));
        const there = one.x.map((x, i) => x + "," + this.place(above[i]).toFixed(1));
        const back = one.x.map((x, i) => x + "," + this.place(below[i]).toFixed(1)).reverse();
        one.group.querySelector(".layer").setAttribute("d", "M" + [...there, ...back].join("L") + "Z");
        one.top = above;
        below = above;
      }
    }
    range() {
      const [from, to] = this.window();
      const margin = this.series.length && this.series[0].x.length > 1 ? this.series[0].x[1] - this.series[0].x[0] : 0;
      let low = Infinity, high = -Infinity;
      for (const one of this.visible()) {
        (this.stacked ? one.top || one.v : one.v).forEach((value, i) => {
          if (value === null || one.x[i] < from - margin || one.x[i] > to + margin || (this.log && value <= 0)) return;
          const scaled = this.log ? Math.log10(value) : value;
          low = Math.min(low, scaled);
          high = Math.max(high, scaled);
        });
      }
      const all = zoom.to === null && zoom.from === 0 && this.visible().length === this.series.length;
      if (low === Infinity || all) return [this.low, this.high];
      if (this.log) return [low - 0.05, Math.max(high, low + 0.15) + 0.05];
      low = Math.min(0, low);
      high = Math.max(low + 1e-9, high);
      return [low * 1.05, high > 0.5 && this.unit === "percent" ? 1 : high * 1.08];
    }
    draw() {
      if (!this.room) return;
      for (const one of this.series) one.group.toggleAttribute("hidden", hidden.has(one.name));
      if (this.stacked) this.restack();
      const width = Math.max(240, this.room), height = HEIGHT + LANE * this.lanes;
      const inner = width - LEFT - RIGHT, tall = HEIGHT - TOP - BOTTOM;
      const [from, to] = this.window(), [low, high] = this.range();
      this.frame.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.marks.setAttribute("width", inner);
      const top = FULL * (1 - (high - this.low) / (this.high - this.low));
      const span = FULL * ((high - low) / (this.high - this.low));
      this.marks.setAttribute("viewBox", `${from} ${top} ${to - from} ${span}`);
      if (this.lane) {
        this.lane.setAttribute("width", inner);
        this.lane.setAttribute("viewBox", `${from} 0 ${to - from} ${10 * this.lanes}`);
      }
      const parts = [];
      for (const tick of this.log ? logTicks(low, high) : niceTicks(low, high, 5)) {
        const y = TOP + tall * (1 - (tick - low) / (high - low));
        parts.push(make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
        parts.push(make("text", { class: "ytick", x: LEFT - 6, y: y + 4 }, label(this.log ? 10 ** tick : tick, this.unit)));
      }
      for (const [x, text] of this.dates(from, to, Math.max(2, Math.floor(inner / 70))))
        parts.push(make("text", { class: "xtick", x: LEFT + (inner * (x - from)) / (to - from), y: height - 8 }, text));
      this.axes.replaceChildren(...parts);
      this.inner = inner;
      this.tall = tall;
    }
    dates(from, to, most) {
      const labels = [];
      if (to - from < 93) {
        const step = Math.max(1, Math.ceil((to - from) / most));
        for (let x = Math.ceil(from); x < to - step * 0.4; x += step) labels.push([x, day(this.start, x).toISOString().slice(5, 10)]);
        return labels;
      }
      const months = (to - from) / 30.4, every = [1, 2, 3, 6, 12, 24, 60, 120, 1200].find((step) => months / step <= most);
      const first = day(this.start, from);
      let year = first.getUTCFullYear(), month = first.getUTCMonth();
      for (;;) {
        const x = (Date.UTC(year, month, 1) - Date.parse(this.start + "T00:00:00Z")) / 864e5;
        if (x >= to - (to - from) * 0.04) return labels;
        if (x >= from && month % Math.min(every, 12) === 0 && year % Math.max(1, Math.floor(every / 12)) === 0)
          labels.push([x, year + "-" + String(month + 1).padStart(2, "0")]);
        month += 1;
        if (month === 12) { month = 0; year += 1; }
      }
    }
    nearest(x) {
      const xs = this.series.length ? this.series[0].x : [];
      let best = 0;
      xs.forEach((one, i) => { if (Math.abs(one - x) < Math.abs(xs[best] - x)) best = i; });
      return best;
    }
    move(event) {
      if (!this.inner || !this.series.length) return;
      const x = this.at(event);
      if (this.from !== undefined) {
        const [from, to] = this.window(), scale = this.inner / (to - from);
        this.choice.setAttribute("visibility", "visible");
        this.choice.setAttribute("x", LEFT + (Math.min(this.from, x) - from) * scale);
        this.choice.setAttribute("y", TOP);
        this.choice.setAttribute("width", Math.abs(x - this.from) * scale);
        this.choice.setAttribute("height", this.tall);
      }
      this.show(this.nearest(x), x);
    }
    release(event) {
      if (this.from === undefined) return;
      const x = this.at(event), from = Math.min(this.from, x), to = Math.max(this.from, x), [a, b] = this.window();
      this.from = undefined;
      this.choice.setAttribute("visibility", "hidden");
      if (to - from > (b - a) * 0.02) setZoom(from, to);
    }
    key(event) {
      const last = this.series.length ? this.series[0].x.length - 1 : 0;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) this.show(Math.max(0, Math.min(last, (this.index === null ? (step > 0 ? -1 : last + 1) : this.index) + step)));
      else if (event.key === "Home") this.show(0);
      else if (event.key === "End") this.show(last);
      else if (event.key === "+" || event.key === "=") this.zoomBy("in");
      else if (event.key === "-") this.zoomBy("out");
      else if (event.key === "0" || event.key === "Escape") { this.zoomBy("all"); this.leave(); }
      else return;
      event.preventDefault();
    }
    zoomBy(how) {
      if (how === "all") return setZoom(0, null);
      const [from, to] = this.window();
      const middle = this.index === null ? (from + to) / 2 : this.series[0].x[this.index];
      const span = Math.max(14, (to - from) * (how === "in" ? 0.5 : 2));
      if (span >= this.days) return setZoom(0, null);
      const start = Math.max(0, Math.min(this.days - span, middle - span / 2));
      setZoom(start, start + span);
    }
    show(index, pointer) {
      const shown = this.visible();
      if (!this.series.length || this.series[0].x[index] === undefined) return;
      this.index = index;
      const x = this.series[0].x[index], [from, to] = this.window();
      const at = LEFT + (this.inner * (x - from)) / (to - from);
      const inside = x >= from && x <= to;
      this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      for (const [name, value] of [["x1", at], ["x2", at], ["y1", TOP], ["y2", TOP + this.tall]]) this.cursor.setAttribute(name, value);
      const rows = [html("b", day(this.start, x).toISOString().slice(0, 7))];
      for (const one of this.stacked ? [...shown].reverse() : shown) {
        const value = one.v[index], row = html("span");
        row.append(html("em", one.name, one.css), html("strong", value === null || value === undefined ? "–" : label(value, this.unit)));
        rows.push(row);
      }
      const center = pointer === undefined ? x : pointer, near = (to - from) * (pointer === undefined ? 0.015 : 0.008);
      const events = this.events.filter((one) => one.x - near <= center && center <= one.x + one.width + near);
      for (const one of events.slice(0, 3)) rows.push(html("i", day(this.start, one.x).toISOString().slice(0, 10) + " " + one.label));
      if (events.length > 3) rows.push(html("i", "and " + (events.length - 3) + " more"));
      this.tip.replaceChildren(...rows);
      this.tip.hidden = false;
      const wide = this.tip.offsetWidth, room = this.plot.clientWidth;
      const left = at + wide + 16 < room ? at + 12 : Math.max(0, at - wide - 12);
      this.tip.style.left = left + "px";
      this.tip.style.top = this.plot.offsetTop + 8 + "px";
    }
    leave() {
      this.index = null;
      this.tip.hidden = true;
      this.cursor.setAttribute("visibility", "hidden");
    }
  }

  const setZoom = (from, to) => {
    zoom.from = from;
    zoom.to = to;
    for (const chart of charts) { chart.leave(); chart.draw(); }
  };
  const toggle = (name) => {
    if (hidden.has(name)) hidden.delete(name);
    else hidden.add(name);
    for (const button of document.querySelectorAll(".toggle"))
      if (button.dataset.series === name) button.setAttribute("aria-pressed", String(!hidden.has(name)));
    for (const chart of charts) chart.draw();
  };

  const drawAll = () => charts.forEach((chart) => chart.draw());
  const rank = (cell) => {
    const text = cell.textContent.trim().replace("−", "-");
    const scales = { quadrillion: 1e15, trillion: 1e12, billion: 1e9, million: 1e6, P: 1e15, T: 1e12, G: 1e9, M: 1e6, k: 1e3 };
    const found = /^[<±+]?\s*(-?)\$?([\d,]+(?:\.\d+)?)\s*%?\s*([A-Za-z]*)/.exec(text);
    return found ? Number(found[1] + found[2].replaceAll(",", "")) * (scales[found[3]] || 1) : text ? text.toLowerCase() : null;
  };
  const drawBars = () => {
    for (const table of document.querySelectorAll("table[data-drawn]")) {
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[Number(table.dataset.drawn)]);
      const sizes = cells.map((cell) => Math.abs(Number(rank(cell)) || 0)), most = Math.max(...sizes) || 1;
      cells.forEach((cell, at) => { cell.classList.add("drawn"); cell.style.setProperty("--share", (100 * sizes[at]) / most + "%"); });
    }
  };
  const sortable = () => {
    for (const table of document.querySelectorAll("main table")) {
      const body = table.tBodies[0];
      if (!body || body.rows.length < 3 || !table.tHead || table.querySelector("button.sort")) continue;
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        if (!head.textContent.trim()) return;
        const button = html("button", undefined, "sort");
        button.type = "button";
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
          const up = head.getAttribute("aria-sort") !== "ascending";
          for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", up ? "ascending" : "descending");
          const keyed = [...body.rows].map((row, place) => ({ row, place, key: rank(row.cells[column]) }));
          keyed.sort((a, b) => {
            if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
            const numbers = typeof a.key === "number" && typeof b.key === "number";
            const order = numbers ? a.key - b.key : String(a.key).localeCompare(String(b.key), undefined, { numeric: true });
            return (up ? order : -order) || a.place - b.place;
          });
          body.append(...keyed.map((one) => one.row));
        });
      });
    }
  };
  // The live page puts other sections in place of some: charts that stand as before are left alone.
  const attach = () => {
    const standing = charts.filter((chart) => chart.figure.isConnected), known = new Set(standing.map((chart) => chart.figure));
    const fresh = [...document.querySelectorAll("figure.chart")].filter((figure) => !known.has(figure)).map((figure) => new Chart(figure));
    charts.splice(0, charts.length, ...standing, ...fresh);
    for (const chart of fresh) {
      rooms.observe(chart.plot);
      for (const button of chart.figure.querySelectorAll(".toggle")) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.series)));
      for (const one of chart.series) one.group.toggleAttribute("hidden", hidden.has(one.name));
    }
    sortable();
    drawBars();
  };
  attach();
  document.addEventListener("planner:redrawn", attach);
  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not([open], .plan)")) if (!one.closest("figure")) { one.open = true; opened.push(one); }
    for (const chart of charts) if (!chart.room) chart.fit(chart.plot.clientWidth); // print waits for no observer
  });
  window.addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
})();
