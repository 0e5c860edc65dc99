"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const all = (selector, place = document) => [...place.querySelectorAll(selector)];
  const make = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);

  // What somebody has answered outlives a reload and the way to the plan and back; the files are the server's.
  const kept = JSON.parse(sessionStorage.getItem("answers") || "null");
  const answers = kept || { tab: crypto.randomUUID(), files: [], workloads: ["chat"], reading: {}, settings: {}, owned: [{}], quoted: [{}] };
  const keep = () => sessionStorage.setItem("answers", JSON.stringify(answers));
  let shown = { workloads: [], lists: {}, benchmarks: {} }, number = 0, pending = 0;

  const post = async (what, body, type = "application/json") => {
    const answer = await fetch(what, { method: "POST", headers: { "Content-Type": type }, body })
      .catch(() => { throw new Error("planner ui does not answer; has it ended?"); });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
  const names = () => (shown.workloads.length ? shown.workloads.map((one) => one.name) : answers.workloads);
  const request = (open) => {
    const settings = Object.fromEntries(Object.entries(answers.settings).filter(([path, text]) => {
      const [section, name] = path.split(".");
      return text !== "" && (section !== "workloads" || names().includes(name));
    }));
    const { reading } = answers, isUsual = answers.files.length > 0 || (answers.workloads.length === 1 && answers.workloads[0] === "chat");
    return JSON.stringify({
      tab: answers.tab, files: answers.files, workloads: isUsual ? [] : answers.workloads, settings, owned: answers.owned, quoted: answers.quoted,
      name: reading.name || "", start: reading.start || "", columns: reading.columns || "", rate: reading.rate || "",
      time_unit: reading.time_unit || "auto", timezone: reading.timezone || "", open,
    });
  };

  // One answer after another: an older one that comes late is dropped.
  const refresh = async (open = false) => {
    const own = ++number;
    $("said").textContent = "Reading";
    $("open").disabled = open;
    try {
      const found = await post("draft", request(open));
      if (own !== number) return;
      tell(found.problems);
      if (found.problems.length) {
        if (open) point(found.problems[0]);
        return;
      }
      shown = found;
      if (open) return go(found);
      draw();
    } catch (error) {
      if (own === number) tell([{ text: error.message, question: "", path: "", file: "", row: "" }]);
    } finally {
      $("open").disabled = false;
    }
  };
  const soon = () => { keep(); clearTimeout(pending); pending = setTimeout(refresh, 120); };
  // The plan, beside twice its growth and, where something is ordered, beside late deliveries.
  const go = (found) => {
    const query = new URLSearchParams({ of: found.name });
    query.append("future", JSON.stringify(["future.growth=2"]));
    if (found.has_quotes) query.append("future", JSON.stringify(["future.slip_months=6"]));
    location.assign("?" + query);
  };

  const tell = (problems) => {
    for (const one of all(".problem")) { one.textContent = ""; one.hidden = true; }
    for (const one of all("[aria-invalid]")) { one.removeAttribute("aria-invalid"); one.removeAttribute("aria-describedby"); }
    for (const problem of problems) {
      const place = placeOf(problem);
      place.hidden = false;
      place.append(make("span", problem.text));
      const control = controlOf(problem);
      if (control) { control.setAttribute("aria-invalid", "true"); control.setAttribute("aria-describedby", place.id); }
    }
    const count = problems.length;
    $("said").textContent = count ? `${count} ${count === 1 ? "answer needs" : "answers need"} a correction first; nothing is lost.` : "";
  };
  const placeOf = ({ question, file }) => (question === "files" && $("f-" + file)) || $("p-" + question);
  const controlOf = ({ question, path, row }) => {
    if (row) {
      const rows = all(`[data-rows="${question}"] > fieldset`);
      return rows[row - 1] && (rows[row - 1].querySelector(`[data-column="${path}"]`) || rows[row - 1].querySelector("select"));
    }
    return all("[data-path]").find((one) => one.dataset.path === path || (path && one.dataset.path.startsWith(path + ".")));
  };
  const point = (problem) => {
    const control = controlOf(problem) || placeOf(problem).closest(".question")?.querySelector("input, select") || $("open");
    control.scrollIntoView({ block: "center" });
    control.focus({ preventScroll: true });
  };

  const draw = () => {
    drawFiles();
    drawWorkloads();
    for (const control of all("[data-path]")) {
      if (control.closest(".workloads") || control.dataset.reading) continue;
      // What is answered is not assumed: without the answer something else may stand there, or nothing.
      const value = control.value === "" && (shown.values || {})[control.dataset.path];
      if (control.tagName === "SELECT") control.options[0].textContent = value ? `${value} (assumed)` : "as assumed";
      else control.placeholder = value ? `${value}, assumed` : control.dataset.usual;
    }
    const { workloads, lists, command } = shown, parts = [];
    for (const [key, kind] of [["owned", /owned$/], ["quoted", /quotes?$/]]) {
      const found = Object.entries(lists).filter(([file, what]) => kind.test(what) && !file.endsWith("-typed.csv"));
      $("read-" + key).hidden = !found.length;
      $("read-" + key).textContent = `Read: ${found.map(([file, what]) => `${what}, from ${file}`).join("; ")}. The rows below are added to them.`;
    }
    const read = workloads.filter((one) => one.source).map((one) => one.name);
    if (read.length) parts.push(`${read.length} ${read.length === 1 ? "workload" : "workloads"} read: ${read.join(", ")}`);
    for (const [file, what] of Object.entries(lists)) parts.push(`${file}: ${what}`);
    $("said").textContent = parts.length ? parts.join("; ") + "." : "No file has been read yet: everything is assumed.";
    $("command").textContent = command || "";
  };
  const kindOf = (file) => {
    if (shown.lists[file.name]) return shown.lists[file.name];
    const own = shown.workloads.filter((one) => one.source.split(", ").includes(file.name));
    if (shown.benchmarks[file.name]) return "a benchmark, compared with what the planner predicts";
    return own.length ? "traffic of " + own.map((one) => one.name).join(", ") : "not read yet";
  };
  const drawFiles = () => {
    const focused = document.activeElement && document.activeElement.id;
    $("files").replaceChildren(...answers.files.map((file, index) => {
      const item = make("li"), isTraffic = shown.workloads.some((one) => one.source.split(", ").includes(file.name));
      item.append(make("strong", file.name), " ", make("span", kindOf(file), { className: "source" }), " ");
      if (isTraffic || file.workload) {
        const box = make("input", "", { id: "w-" + index, value: file.workload, maxLength: 40, spellcheck: false, placeholder: "by the file" });
        box.addEventListener("change", () => { file.workload = box.value.trim(); soon(); });
        const label = make("label", "workload ");
        label.append(box);
        item.append(label, " ");
      }
      if (shown.benchmarks[file.name]) {
        const box = make("input", "", { id: "r-" + index, value: file.run || "", spellcheck: false, placeholder: "accelerator=H200,tp=8,precision=fp8" });
        box.addEventListener("change", () => { file.run = box.value.trim(); soon(); });
        const label = make("label", "its run ");
        label.append(box);
        item.append(label, " ");
      }
      const remove = make("button", "Remove", { type: "button", ariaLabel: "Remove " + file.name });
      remove.addEventListener("click", async () => {
        answers.files = answers.files.filter((other) => other !== file);
        const body = JSON.stringify({ tab: answers.tab, files: [file] });
        await post("forget", body).catch(() => {});
        shown = { workloads: [], lists: {}, benchmarks: {} };
        drawFiles();
        $("choose").focus();
        soon();
      });
      const measured = make("ul", "", { className: "source" });
      measured.append(...(shown.benchmarks[file.name] || []).map((text) => make("li", text)));
      if (measured.children.length) item.append(measured);
      item.append(remove, make("p", "", { className: "problem", id: "f-" + file.name, hidden: true }));
      return item;
    }));
    if (focused && $(focused) && /^[wr]-/.test(focused)) $(focused).focus();
  };
  let drawn = "";
  const drawWorkloads = () => {
    const list = names();
    $("more").hidden = answers.files.length > 0 && shown.workloads.length > 0;
    if (drawn !== list.join()) {
      drawn = list.join();
      for (const place of all(".workloads")) {
        const template = document.querySelector(`template[data-question="${place.dataset.question}"]`);
        place.replaceChildren(...list.map((name) => {
          const block = make("fieldset");
          block.append(make("legend", name), template.content.cloneNode(true));
          for (const answer of all(".answer", block)) {
            const control = answer.querySelector("input, select"), path = `workloads.${name}.${answer.dataset.key}`;
            control.id = "a-" + path;
            control.dataset.path = path;
            control.value = answers.settings[path] || "";
            answer.querySelector("label").htmlFor = control.id;
          }
          if (answers.workloads.length > 1 && !shown.workloads.some((one) => one.source) && place.dataset.question === "models") {
            const remove = make("button", "Remove", { type: "button", ariaLabel: "Remove the workload " + name });
            remove.addEventListener("click", () => { answers.workloads = answers.workloads.filter((other) => other !== name); shown.workloads = []; drawWorkloads(); soon(); });
            block.append(remove);
          }
          return block;
        }));
      }
    }
    for (const answer of all(".workloads .answer")) {
      const control = answer.querySelector("input, select"), [, name] = control.dataset.path.split(".");
      const own = shown.workloads.find((one) => one.name === name), side = answer.dataset.key.split(".")[1];
      const figures = own ? own.figures : {};
      let [text, remark] = figures[answer.dataset.key] || ["", ""];
      if (!text && answer.dataset.key.startsWith("lengths") && figures[`lengths.${side}.quantiles`]) {
        [, remark] = figures[`lengths.${side}.quantiles`];
        text = "as counted";
      }
      const isGiven = control.value !== "";
      answer.querySelector(".source").textContent = isGiven ? "as given" : remark;
      if (control.tagName === "SELECT") control.options[0].textContent = isGiven || !text ? "as assumed" : text;
      else control.placeholder = isGiven || !text ? "assumed" : text;
    }
  };
  const drawRows = (key) => {
    const place = document.querySelector(`div[data-rows="${key}"]`), template = document.querySelector(`template[data-rows="${key}"]`);
    place.replaceChildren(...answers[key].map((row, index) => {
      const block = make("fieldset");
      block.append(make("legend", "row " + (index + 1)), template.content.cloneNode(true));
      for (const control of all("[data-column]", block)) {
        control.id = `${key}-${index}-${control.dataset.column}`;
        control.value = row[control.dataset.column] || "";
        control.previousElementSibling.htmlFor = control.id;
        control.addEventListener("change", () => { row[control.dataset.column] = control.value; soon(); });
      }
      if (answers[key].length > 1) {
        const remove = make("button", "Remove", { type: "button", ariaLabel: `Remove row ${index + 1}` });
        remove.addEventListener("click", () => { answers[key].splice(index, 1); drawRows(key); soon(); });
        block.append(remove);
      }
      return block;
    }));
  };

  const take = async (files) => {
    for (const file of files) {
      $("said").textContent = "Taking " + file.name;
      try {
        await post(`keep?${new URLSearchParams({ tab: answers.tab, name: file.name })}`, file, "application/octet-stream");
        if (!answers.files.some((one) => one.name === file.name)) answers.files.push({ name: file.name, workload: "" });
      } catch (error) {
        tell([{ text: `${file.name}: ${error.message}`, question: "files", path: "", file: "", row: "" }]);
        return;
      }
    }
    drawFiles();
    soon();
  };
  $("choose").addEventListener("change", async () => { await take([...$("choose").files]); $("choose").value = ""; });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  document.addEventListener("dragover", () => $("drop").classList.add("over"));
  for (const kind of ["dragleave", "drop"]) document.addEventListener(kind, () => $("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => take([...event.dataTransfer.files]));
  $("questions").addEventListener("submit", (event) => event.preventDefault());
  $("questions").addEventListener("change", (event) => {
    const control = event.target;
    if (control.dataset.reading) answers.reading[control.dataset.reading] = control.value.trim();
    else if (control.dataset.path) answers.settings[control.dataset.path] = control.value.trim();
    else return;
    soon();
  });
  $("add-workload").addEventListener("click", () => {
    const name = $("workload").value.trim().toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "");
    if (!name || answers.workloads.includes(name)) return $("workload").focus();
    answers.workloads.push(name);
    $("workload").value = "";
    shown.workloads = [];
    drawWorkloads();
    soon();
  });
  for (const button of all("[data-add]")) button.addEventListener("click", () => {
    const key = button.dataset.add;
    answers[key].push({});
    drawRows(key);
    $(`${key}-${answers[key].length - 1}-accelerator`).focus();
    keep();
  });
  $("open").addEventListener("click", () => { clearTimeout(pending); refresh(true); });

  for (const control of all("[data-reading]")) control.value = answers.reading[control.dataset.reading] ?? (control.tagName === "SELECT" ? "auto" : "");
  for (const control of all("[data-path]")) if (!control.dataset.reading) {
    control.value = answers.settings[control.dataset.path] || "";
    control.dataset.usual = control.placeholder || "";
  }
  drawRows("owned");
  drawRows("quoted");
  drawFiles();
  drawWorkloads();
  refresh();
})();
