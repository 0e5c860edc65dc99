"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const tab = crypto.randomUUID();
  let move = 0, shown = null, asked = null, settings = null, isNew = false, gesture = null, under = null, typed = null;

  // The page is its address: scenario, what is changed, plans and futures of the grid. So back, forward, reload and a
  // second tab need nothing else.
  const of = $("controls").dataset.of, isFuture = (path) => path.startsWith("future.");
  const list = (text) => { try { const made = JSON.parse(text); return Array.isArray(made) ? made : []; } catch { return []; } };
  const read = () => {
    const query = new URLSearchParams(location.search);
    const set = new Map(query.getAll("set").map((change) => [change.slice(0, change.indexOf("=")), change.slice(change.indexOf("=") + 1)]));
    return { set, plans: query.getAll("plan").map(list), futures: query.getAll("future").map(list) };
  };
  const words = (changes) => [...changes].map(([path, text]) => path + "=" + text);
  const write = (state, name = of) => {
    const query = new URLSearchParams();
    query.append("of", name);
    for (const change of words(state.set)) query.append("set", change);
    for (const plan of state.plans) query.append("plan", JSON.stringify(plan));
    for (const future of state.futures) query.append("future", JSON.stringify(future));
    return location.pathname + (query.size ? "?" + query : "");
  };
  const request = (state) => ({ plan: [of, ...words(state.set)], plans: state.plans, futures: state.futures });
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const depth = () => (history.state && history.state.depth) || 0;

  const post = async (what, asked, signal) => {
    const answer = await fetch(what, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), signal })
      .catch((error) => { throw error.name === "AbortError" ? error : new Error("planner ui does not answer; has it ended?"); });
    if (answer.ok) return answer.json();
    const error = new Error(await answer.text());
    error.superseded = answer.status === 409;
    throw error;
  };
  // What is said of fields whose text is no value, by their path, stays until they have one.
  const refused = new Map();
  const fail = (text) => {
    $("failed").textContent = [text, ...refused.values()].filter(Boolean).join("\n");
    $("failed").hidden = !$("failed").textContent;
  };
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));

  // A part that reads as before is left alone, folded and sorted as somebody left it; the others keep their place.
  const texts = new Map();
  const fill = (part, fresh) => {
    const open = new Map([...part.querySelectorAll("details")].map((one) => [one.querySelector("summary").textContent, one.open]));
    part.replaceChildren(...fresh.childNodes);
    for (const one of part.querySelectorAll("details")) one.open = open.get(one.querySelector("summary").textContent) ?? one.open;
  };
  const swap = (place, parts) => {
    const wanted = new Set(parts.map(([id]) => id));
    for (const part of [...place.children]) if (!wanted.has(part.id)) { texts.delete(part.id); part.remove(); }
    parts.forEach(([id, html], i) => {
      const there = [...place.children].find((part) => part.id === id);
      if (there && texts.get(id) === html) return;
      texts.set(id, html);
      const fresh = document.createElement("template");
      fresh.innerHTML = html;
      if (there) fill(there, fresh.content.firstElementChild);
      else place.insertBefore(fresh.content.firstElementChild, place.children[i] || null);
    });
    place.classList.remove("old");
    document.dispatchEvent(new Event("planner:redrawn"));
  };
  // Settings keep their place while one of them is held; they are put up anew where a plan has others.
  const setControls = (held) => {
    const form = $("controls");
    if (held.controls && held.form !== form.dataset.form) {
      const focused = document.activeElement && document.activeElement.id, typing = typed;
      const texts = [...refused.keys(), typed].filter((path) => path && $("setting-" + path)).map((path) => [path, $("setting-" + path).value]);
      const fresh = document.createElement("form");
      fresh.innerHTML = held.controls;
      typed = null; // the field goes, which is not the end of what is typed into it
      fill(form, fresh);
      form.dataset.form = held.form;
      for (const [path, text] of texts) if ($("setting-" + path)) $("setting-" + path).value = text;
      for (const path of refused.keys()) $("setting-" + path)?.setAttribute("aria-invalid", "true");
      if (focused && $(focused)) $(focused).focus();
      typed = typing;
    }
    const sliders = new Map([...form.querySelectorAll("input[type=range]")].map((one) => [one.dataset.path, one]));
    for (const [path, value, placeholder] of held.settings) {
      if (path === gesture || path === typed || refused.has(path)) continue;
      const box = $("setting-" + path), slider = sliders.get(path);
      box.removeAttribute("aria-invalid");
      if (box.value !== value) box.value = value;
      if (box.type === "text" && box.placeholder !== placeholder) box.placeholder = placeholder;
      if (slider && slider.value !== (value || placeholder)) slider.value = value || placeholder;
    }
  };
  // What is decided here is a list of --set there; a future is a column of the grid, and is saved as one.
  const quoted = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'");
  const elsewhere = (changes) => {
    const file = $("elsewhere").dataset.file, folder = "outputs/" + of;
    const sets = changes.map((change) => " --set " + quoted(change)).join("");
    const given = changes.length ? ", overrides=" + JSON.stringify(changes) : "";
    $("commands").textContent = [
      `planner run ${quoted(file)}${sets}`, `planner memo ${folder}`, "", "from planner import api", "",
      `answer = api.run(${JSON.stringify(file)}${given})`, "print(answer.is_met(), answer.folder)",
    ].join("\n");
  };
  const settle = (state, futures) => {
    shown = state;
    $("undo").disabled = depth() === 0;
    $("future").disabled = ![...state.set.keys()].some(isFuture);
    const chip = (key, one, text) => {
      const item = document.createElement("li"), button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: text + " ✕", ariaLabel: "Remove " + text });
      button.addEventListener("click", () => update({ [key]: asked[key].filter((other) => !same(one, other)) }));
      item.append(button);
      return item;
    };
    const plain = (changes) => changes.map((change) => change.replace(/^[a-z]+\./, "").replace("=", " ").replaceAll(/[._]/g, (dot, at, all) => (/\d/.test(all[at - 1]) && /\d/.test(all[at + 1]) ? dot : " "))).join(", ");
    elsewhere(parted(state, false));
    $("kept").replaceChildren(...state.plans.map((one) => chip("plans", one, [one[0], plain(one.slice(1))].filter(Boolean).join(": "))), ...state.futures.map((one, index) => chip("futures", one, futures[index])));
  };

  // One plan after another: a newer move makes the server and this page drop the one before, and begins with its changes.
  const show = async (state, told = "") => {
    asked = state;
    if (under) under.abort();
    under = new AbortController();
    const signal = under.signal, number = ++move, begun = performance.now();
    const asking = (one) => (part) => ({ tab, move: number, part, form: $("controls").dataset.form, ...request(one) });
    const wanted = asking(state);
    const late = setTimeout(() => { $("status").textContent = "simulating"; }, 300);
    try {
      const answer = await post("show", wanted("answer"), signal);
      if (number !== move) return;
      if (isNew) history.pushState({ depth: depth() + 1 }, "", write(state));
      else history.replaceState({ depth: depth() }, "", write(state));
      isNew = false;
      $("others").classList.add("old");
      swap($("first"), answer.parts);
      settings = answer;
      setControls(settings);
      $("line").innerHTML = answer.line;
      settle(state, answer.futures);
      fail(told);
      await painted();
      const first = Math.round(performance.now() - begun);
      swap($("others"), (await post("show", wanted("rest"), signal)).parts);
      await painted();
      clearTimeout(late);
      $("status").dataset.first = first;
      $("status").dataset.whole = Math.round(performance.now() - begun);
      $("status").textContent = `first run in ${first} ms`;
      $("status").dataset.move = number;
      await drawGrid(wanted, signal);
    } catch (error) {
      if (error.name === "AbortError" || error.superseded || number !== move) return;
      clearTimeout(late);
      isNew = false;
      gesture = null;
      asked = shown || state;
      const lost = shown ? words(state.set).filter((one) => !words(shown.set).includes(one)).length : 0;
      fail(lost > 1 ? `${error.message}\nAll ${lost} changes made since the plan shown here are undone.` : error.message);
      $("status").textContent = "still showing the previous plan";
      if (!shown) return told || show({ set: new Map(), plans: [], futures: [] }, error.message);
      setControls(settings);
      $("status").dataset.move = number;
      drawGrid(asking(shown), signal).catch(() => {});
    } finally {
      clearTimeout(late);
    }
  };
  // Plans by futures come cell by cell, each over 19 replications; with the first of them the answer has intervals.
  const drawGrid = async (wanted, signal) => {
    const before = $("status").textContent;
    for (let left = 1; left > 0; ) {
      const answer = await post("show", wanted("grid"), signal);
      left = answer.left;
      swap($("grid"), [["futures", answer.grid]]);
      if (answer.parts) {
        swap($("first"), answer.parts);
        $("line").innerHTML = answer.line;
      }
      $("status").textContent = left ? `${before}; ${left} cells of the grid to draw` : `${before}; all drawn`;
    }
    $("status").dataset.drawn = wanted("").move;
  };

  const change = (path, text, held) => {
    const state = { ...asked, set: new Map(asked.set) };
    state.set.set(path, text);
    if (!held || gesture !== path) isNew = true; // a slider that is dragged is one step of undo
    gesture = held ? path : null;
    show(state);
  };
  // A field is taken when it changes, or is left: one that was put up anew meanwhile does not say that it changed.
  const refuse = (control, words) => {
    const owner = control.closest("fieldset")?.querySelector("legend").textContent;
    refused.set(control.dataset.path, `${[owner, control.labels[0].textContent].filter(Boolean).join(", ")}: ${words}`);
    control.setAttribute("aria-invalid", "true");
    fail("");
  };
  const take = (control) => {
    const { path, template } = control.dataset, text = control.value.trim();
    typed = null;
    if (control.required && text === "") return refuse(control, "needs a number");
    if (control.inputMode === "decimal" && text !== "" && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text))
      return refuse(control, `takes only a number, not "${text}"`);
    refused.delete(path);
    control.removeAttribute("aria-invalid");
    change(path, template.replace("%", text === "" ? "null" : text));
  };
  $("controls").addEventListener("input", (event) => {
    const control = event.target, { path, template } = control.dataset;
    if (control.type !== "range") { typed = path || null; return; }
    $("setting-" + path).value = control.value;
    $("setting-" + path).removeAttribute("aria-invalid");
    refused.delete(path);
    change(path, template.replace("%", control.value), true);
  });
  $("controls").addEventListener("change", (event) => {
    const control = event.target;
    if (control.id === "add") return control.value && change(control.value.slice(0, control.value.indexOf("=")), control.value.slice(control.value.indexOf("=") + 1));
    if (control.type === "range") { gesture = null; return; }
    take(control);
  });
  $("controls").addEventListener("focusout", (event) => {
    const control = event.target;
    if (typed === null || typed !== control.dataset.path) return;
    const [, value] = (settings ? settings.settings : []).find(([path]) => path === typed) || [];
    if (control.value === value) typed = null;
    else take(control);
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());

  const update = (more) => { isNew = true; show({ ...asked, ...more }); };
  $("undo").addEventListener("click", () => {
    refused.clear();
    isNew = false;
    if (asked !== shown) show(shown); // what has no answer yet is no step of its own
    else if (depth()) history.back();
  });
  const parted = (state, wanted) => words(state.set).filter((change) => isFuture(change) === wanted);
  const added = (all, one) => (all.some((other) => same(one, other)) ? all : [...all, one]);
  $("keep").addEventListener("click", () => update({ plans: added(asked.plans, [of, ...parted(asked, false)]) }));
  $("future").addEventListener("click", () =>
    update({ futures: added(asked.futures, parted(asked, true)), set: new Map([...asked.set].filter(([path]) => !isFuture(path))) }));
  for (const link of document.querySelectorAll("#gallery a"))
    link.addEventListener("click", (event) => { event.preventDefault(); location.assign(write({ ...asked, set: new Map() }, link.dataset.of)); });
  // What is written has a line of its own: a grid that is still drawn says so in another.
  const ask = (id, what) => $(id).addEventListener("click", async () => {
    $(id).disabled = true;
    $("written").textContent = "writing";
    try {
      const answer = await post(what, { ...request(asked), name: $("name").value });
      fail("");
      $("written").textContent = answer.said;
      if (answer.href) {
        const link = document.createElement("a");
        Object.assign(link, { href: answer.href, target: "_blank", rel: "noopener", textContent: "open it" });
        $("written").append("; ", link);
        link.focus();
      }
    } catch (error) {
      fail(error.message);
      $("written").textContent = "nothing written";
    } finally {
      $(id).disabled = false;
    }
  });
  ask("save", "save");
  ask("share", "share");
  ask("memo", "memo");
  // The search goes on beside the page: what it has so far is asked for every second, until it is done or stopped.
  const sizing = async (begin) => {
    let answer = await post("size", begin);
    // One that ended without a plan is told where it was begun: this may be the page of another plan.
    if (!answer.running && !answer.parts.length && !begin.plan) return;
    $("sizing").hidden = false;
    while (answer.running) {
      $("size").textContent = "Stop sizing";
      $("steps").replaceChildren(...answer.lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
      await new Promise((done) => setTimeout(done, 1000));
      answer = await post("size", {});
    }
    $("size").textContent = "Size this";
    $("steps").replaceChildren(...answer.lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
    swap($("answer-sized"), answer.parts);
    if (answer.href) $("answer-sized").append(Object.assign(document.createElement("a"), { href: answer.href, target: "_blank", rel: "noopener", textContent: "The sizing's report" }));
    // Why there is no plan is the last that it said.
    if (!answer.parts.length) fail(answer.lines.at(-1) || "the sizing ended without a plan");
    $("size").dataset.done = "1";
  };
  const sized = (begin) => sizing(begin).catch((error) => fail(error.message));
  $("size").addEventListener("click", () =>
    sized($("size").textContent === "Size this" ? { ...request(asked), name: $("name").value } : { stop: true }));
  sized({});
  // Three hints on first use. A cookie remembers them: another start has another port, and so another local storage.
  const HINTS = [
    ["controls", "Every number of the plan is a setting. Change one, and the answer above the results is calculated again. Undo reverts the change."],
    ["grid", "Each row of this grid is a plan, and each column is a future. To add a future, set it under Future and press Add this future. To keep a plan next to others, press Add this plan to the grid."],
    ["bar", "Size this searches for the cheapest purchases that meet the SLO target. Memo, Share and Save write what you see to files."],
  ];
  const hint = (number) => {
    for (const [id] of HINTS) $(id).classList.remove("pointed");
    const [id, text] = HINTS[number] || [];
    $("tour").hidden = !id;
    if (!id) { document.cookie = "planner-hints=seen; path=/; max-age=31536000; samesite=strict"; return; }
    $(id).classList.add("pointed");
    $("hint").textContent = `${number + 1} of ${HINTS.length}: ${text}`;
    $("next").textContent = number + 1 < HINTS.length ? "Next hint" : "Done";
    $("next").onclick = () => hint(number + 1);
  };
  $("skip").addEventListener("click", () => hint(HINTS.length));
  if (!document.cookie.includes("planner-hints=seen")) hint(0);
  window.addEventListener("popstate", () => { isNew = false; gesture = null; refused.clear(); show(read()); });
  // By script: as a step of the history of its own it would be one without its depth, and Undo would end there.
  document.querySelector("a.skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("results").scrollIntoView();
    $("results").focus({ preventScroll: true });
  });
  if (matchMedia("(max-width: 56rem)").matches) for (const part of $("controls").querySelectorAll("details")) part.open = false;
  show(read());
})();
