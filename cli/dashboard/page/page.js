// Shows the newest state of the stack. All that comes from the cluster is set as text, never as markup.

const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

const number = (value, digits = 0) =>
  value === null || value === undefined
    ? "-"
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const dollars = (value) => (value === null || value === undefined ? "-" : `$${number(value, 2)}`);
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

const STATE_CLASS = { running: "good", completed: "good", failed: "bad", held: "bad", queued: "notable", evicted: "notable" };

function state(name) {
  return element("span", name, STATE_CLASS[name]);
}

/** Changes what an element holds, only if it changes, and leaves the focus on the link that had it. */
function put(parent, ...children) {
  const fresh = parent.cloneNode(false);
  fresh.append(...children);
  if (fresh.isEqualNode(parent)) return;
  const focused = parent.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  parent.replaceChildren(...fresh.childNodes);
  if (focused) [...parent.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
}

/** Fills a table. A column whose name ends with "#" holds numbers; a cell is text or an element. */
function fill(table, columns, rows, none) {
  const head = element("thead");
  const names = head.appendChild(element("tr"));
  for (const column of columns) {
    const cell = names.appendChild(element("th", column.replace("#", ""), column.endsWith("#") ? "number" : ""));
    cell.scope = "col";
  }
  const body = element("tbody");
  for (const row of rows) {
    const line = body.appendChild(element("tr"));
    row.forEach((value, index) => {
      const cell = line.appendChild(element("td", undefined, columns[index].endsWith("#") ? "number" : ""));
      cell.append(value instanceof Node ? value : String(value));
    });
  }
  if (!rows.length) {
    const cell = body.appendChild(element("tr")).appendChild(element("td", none));
    cell.colSpan = columns.length;
  }
  put(table, head, body);
}

function showJobs(found, chosen) {
  const rows = found.jobs.map(({ summary: job }) => {
    const link = element("a", job.name);
    link.href = `#${encodeURIComponent(job.name)}`;
    if (job.name === chosen) link.setAttribute("aria-current", "true");
    const place = job.position === null ? job.queue : `${job.queue}, position ${job.position}`;
    const step = job.steps ? `${number(job.step)} of ${number(job.steps)}` : "-";
    return [link, state(job.state), place, step, number(job.loss, 4), duration(job.seconds_left), job.restarts, dollars(job.usd)];
  });
  const columns = ["job", "state", "queue", "step#", "loss#", "left#", "restarts#", "$ so far#"];
  fill(byId("jobs"), columns, rows, "no job");
}

function showFigures(job, files) {
  const figures = [
    ["step", job.steps ? `${number(job.step)} of ${number(job.steps)}` : "-"],
    ["loss", number(job.loss, 4)],
    ["held-out loss", number(files.held_out_loss, 4)],
    ["tokens/s", number(job.tokens_per_second)],
    ["time left", duration(job.seconds_left)],
    ["last checkpoint", job.checkpoint_step === null ? "-" : `step ${number(job.checkpoint_step)}`],
    ["hosts", `${job.hosts_running} of ${job.hosts} on ${job.slices} slices`],
    ["restarts", number(job.restarts)],
    ["goodput", job.goodput === null ? "-" : `${number(100 * job.goodput, 1)} %`],
    ["spent so far", dollars(job.usd)],
  ];
  put(
    byId("figures"),
    ...figures.map(([name, value]) => {
      const group = element("div");
      group.append(element("dt", name), element("dd", value));
      return group;
    }),
  );
}

function showFindings(findings, at) {
  const items = findings.map((finding) => {
    const item = element("li");
    const since = finding.since ? ` Since ${duration(at - finding.since)}.` : "";
    item.append(element("p", finding.what + since));
    for (const line of finding.evidence) item.append(element("p", line, "evidence"));
    for (const line of finding.next) item.append(element("p", line, "next"));
    return item;
  });
  put(byId("findings"), ...(items.length ? items : [element("li", "Nothing holds the job up.")]));
}

function showLoss(losses, starts) {
  byId("loss-section").hidden = losses.length < 2;
  if (losses.length < 2) return;
  const [width, height, left, bottom] = [800, 240, 56, 24];
  const steps = losses.map(([step]) => step);
  const values = losses.map(([, loss]) => loss);
  const [first, last] = [steps[0], steps.at(-1)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (step) => left + ((step - first) / (last - first || 1)) * (width - left - 8);
  const y = (loss) => 8 + ((high - loss) / (high - low || 1)) * (height - bottom - 16);
  const told = `loss from ${values[0].toFixed(4)} at step ${first} to ${values.at(-1).toFixed(4)} at step ${last}`;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told });
  for (const loss of [low, (low + high) / 2, high]) {
    chart.append(svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(loss), y2: y(loss) }));
    chart.append(svg("text", { x: left - 8, y: y(loss) + 4, "text-anchor": "end" }, loss.toFixed(3)));
  }
  for (const start of starts.slice(1)) {
    if (start.first_step === null || start.first_step < first) continue;
    const at = x(start.first_step);
    chart.append(svg("line", { class: "restart", x1: at, x2: at, y1: 8, y2: height - bottom }));
  }
  const points = losses.map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  chart.append(svg("polyline", { class: "curve", points }));
  chart.append(svg("text", { x: left, y: height - 6 }, `step ${number(first)}`));
  chart.append(svg("text", { x: width - 8, y: height - 6, "text-anchor": "end" }, `step ${number(last)}`));
  put(byId("loss"), chart);
}

function showGoodput(goodput) {
  byId("goodput-section").hidden = !goodput;
  if (!goodput) return;
  const rows = goodput.parts.map((part) => {
    const share = goodput.seconds ? part.seconds / goodput.seconds : 0;
    const bar = element("div", undefined, "bar");
    bar.style.width = `${100 * share}%`;
    bar.setAttribute("aria-hidden", "true");
    const name = part.after ? `${part.cause} after ${part.after}` : part.cause;
    return [name, duration(part.seconds), dollars(part.usd), `${number(100 * share, 1)} %`, bar];
  });
  fill(byId("goodput"), ["cause", "time#", "$#", "share#", "of the whole"], rows, "nothing yet");
}

function showJob(found, chosen) {
  const shown = found.jobs.find(({ summary }) => summary.name === chosen);
  byId("job").hidden = !shown;
  if (!shown) return;
  const job = shown.summary;
  byId("job-heading").textContent = job.name;
  put(byId("job-line"), state(job.state), ` in namespace ${job.namespace}${job.run ? `, run ${job.run}` : ""}`);
  showFigures(job, shown);
  showFindings(shown.findings, found.at);
  showLoss(shown.losses, shown.starts);
  showGoodput(shown.goodput);
  const hosts = shown.hosts.map((host) => [
    host.host,
    host.exit_code ? `${host.phase}, exit ${host.exit_code}` : host.phase,
    host.node || "-",
    host.held_up || host.waits_for || host.ended_for,
  ]);
  fill(byId("hosts"), ["host", "phase", "node", "says"], hosts, "no host yet");
  byId("starts-section").hidden = !shown.starts.length;
  const starts = shown.starts.map((start) => [
    start.number,
    clock(start.began),
    start.first_step === null ? "-" : `${start.first_step} to ${start.last_step}`,
    start.ending,
    start.cause,
  ]);
  fill(byId("starts"), ["start#", "began", "steps", "ended with", "cause"], starts, "none");
  byId("events-section").hidden = !shown.events.length;
  const events = shown.events.map((event) => [
    clock(event.at),
    element("span", event.reason, event.warning ? "notable" : ""),
    `${event.kind} ${event.name}`,
    event.message,
  ]);
  fill(byId("events"), ["time", "event", "of", "message"], events, "none");
}

function showStack(found) {
  const pools = Map.groupBy(found.nodes, (node) => node.pool);
  const slices = [...pools].map(([pool, nodes]) => {
    const troubles = nodes
      .filter((node) => !node.usable)
      .map((node) => `${node.name}: ${node.bad_host || node.not_ready || "cordoned"}`);
    const usable = nodes.filter((node) => node.usable).length;
    const count = element("span", `${usable} of ${nodes.length}`, usable < nodes.length ? "notable" : "good");
    return [pool, nodes[0].topology, count, troubles.join("; ")];
  });
  for (const [pool, topology] of Object.entries(found.hostless)) {
    slices.push([pool, topology, element("span", "none", "notable"), "no host is there"]);
  }
  fill(byId("slices"), ["slice", "topology", "hosts usable", "trouble"], slices, "no TPU node");
  const queues = found.queues.flatMap((queue) =>
    queue.shares.map((share) => [
      queue.name,
      share.flavor,
      share.used,
      share.quota,
      queue.admitted,
      queue.pending,
      queue.active && !queue.active.holds ? element("span", queue.active.message, "bad") : "admits jobs",
    ]),
  );
  const columns = ["queue", "flavor", "chips in use#", "quota#", "admitted#", "waiting#", "state"];
  fill(byId("queues"), columns, queues, "no queue");
}

function show(found) {
  document.title = `${found.stack} - multislice`;
  byId("title").textContent = found.stack;
  const price = found.usd_per_hour === null ? "" : `, ${dollars(found.usd_per_hour)} an hour`;
  byId("price").textContent = `cluster ${found.cluster}${price}`;
  const names = found.jobs.map(({ summary }) => summary.name);
  const asked = location.hash.slice(1);
  // Compared as they are written in the address, for a broken one cannot be decoded.
  const chosen = names.find((name) => encodeURIComponent(name) === asked) ?? names[0];
  showJobs(found, chosen);
  showJob(found, chosen);
  showStack(found);
  byId("notes-section").hidden = !found.notes.length;
  put(byId("notes"), ...found.notes.map((note) => element("li", note)));
  // Beside the live line, which would be read out at every look.
  byId("seen").textContent = `seen at ${clock(found.at)}`;
  tell(found.answered ? "live" : "the cluster does not answer", !found.answered);
}

function tell(text, away) {
  const line = byId("connection");
  if (line.textContent !== text) line.textContent = text;
  line.classList.toggle("away", away);
}

let latest = null;
const source = new EventSource("events");
source.addEventListener("message", (message) => {
  latest = JSON.parse(message.data);
  show(latest);
});
source.addEventListener("error", () => tell("the dashboard does not answer; is its command still running?", true));
addEventListener("hashchange", () => latest && show(latest));
