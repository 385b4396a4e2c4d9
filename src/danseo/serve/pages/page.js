"use strict";
// All text goes through textContent: nothing that a user or a model says is ever read as HTML.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const words = JSON.parse(document.body.dataset.words), _ = (text) => words[text] ?? text;
let about = null;

function made(tag, text, kind) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function drawn(tag, facts, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const percent = (share) => (100 * share).toFixed(1) + " %";
const hue = (name) => "h" + [...new TextEncoder().encode(name)].reduce((a, b) => a + b, 0) % 8;

// What is asked for, by the form of the task's examples

function field(name, label, tag = "textarea", value = "") {
  const box = made(tag);
  box.id = box.name = name;
  box.value = value;
  const caption = made("label", label);
  caption.htmlFor = name;
  $("fields").append(caption, box);
  return box;
}

const value = (name) => $(name).value;
const FORMS = {
  text: { make: () => field("text", _("Text")), read: () => value("text") },
  pair: {
    make: () => { field("first", _("First text")); field("second", _("Second text")); },
    read: () => flat("first") + "\t" + flat("second"),
  },
  relation: {
    make: () => {
      field("sentence", _("Sentence"));
      field("subject", _("The subject, as it stands in the sentence"), "input");
      field("subject_type", _("Type of the subject (PER, ORG, LOC, …)"), "input", "PER");
      field("object", _("The object, as it stands in the sentence"), "input");
      field("object_type", _("Type of the object (PER, ORG, LOC, …)"), "input", "PER");
    },
    read: () => ({ [about.fields.text]: value("sentence"), [about.fields.subject]: entity("subject"), [about.fields.object]: entity("object") }),
  },
  question: {
    make: () => { field("context", _("Passage")).className = "tall"; field("question", _("Question"), "input"); },
    read: () => ({ [about.fields.text]: value("context"), [about.fields.question]: value("question") }),
  },
  dialogue: {
    make: () => (field("turns", _("Turns, one per line: user, system, user, …")).className = "tall"),
    read: () => ({ dialogue: value("turns").split("\n").filter((turn) => turn.trim()).map((text, k) => ({ role: k % 2 ? "sys" : "user", text })) }),
  },
  choices: {
    make: () => {
      field("text", _("Text"));
      if (about.fields.pair) field("pair", about.fields.pair, "input");
      about.fields.choices.forEach((name, k) => field("choice" + k, _("Candidate {label}").replace("{label}", about.labels[k]), "input"));
    },
    read: () => Object.fromEntries([
      [about.fields.text, value("text")],
      ...(about.fields.pair ? [[about.fields.pair, value("pair")]] : []),
      ...about.fields.choices.map((name, k) => [name, value("choice" + k)]),
    ]),
  },
  other: { make: () => field("json", _("A JSON object")), read: () => JSON.parse(value("json")) },
};

const flat = (name) => value(name).replace(/\s+/g, " ").trim();

function entity(role) {
  const characters = [...value("sentence")], word = [...value(role)];
  const start = characters.findIndex((_, k) => word.length && word.every((one, n) => characters[k + n] === one));
  if (start < 0) throw new Error(role === "subject" ? _("the subject does not stand in the sentence") : _("the object does not stand in the sentence"));
  return { word: word.join(""), start_idx: start, end_idx: start + word.length - 1, type: value(role + "_type").trim() };
}

function form() {
  const special = { relation: FORMS.relation, question_answering: FORMS.question, dialogue_state: FORMS.dialogue, multiple_choice: FORMS.choices };
  if (special[about.type]) return special[about.type];
  if (!["classification", "multilabel", "regression", "tagging", "parsing"].includes(about.type)) return FORMS.other;
  return about.is_pair ? FORMS.pair : FORMS.text;
}

// What is shown, by the type of the task

function marked(text, spans) {
  const line = made("div", undefined, "text"), characters = [...text];
  let end = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < end) continue;
    line.append(characters.slice(end, span.start).join(""));
    const mark = made("mark", characters.slice(span.start, span.end).join(""), hue(span.type));
    mark.append(made("sub", span.type + (span.confidence == null ? "" : " " + percent(span.confidence))));
    line.append(mark);
    end = span.end;
  }
  line.append(characters.slice(end).join(""));
  return line;
}

function bars(probabilities) {
  const table = made("table", undefined, "bars");
  for (const [label, share] of Object.entries(probabilities).sort((a, b) => b[1] - a[1]).slice(0, 8)) {
    const row = table.insertRow(), bar = made("progress");
    bar.max = 1;
    bar.value = share;
    bar.setAttribute("aria-label", label);
    row.append(made("th", label), made("td"), made("td", percent(share)));
    row.children[1].append(bar);
  }
  return table;
}

// On a phone every word has a line, and the arcs are on its left.
function uprightArcs(words) {
  const row = 26, span = (k) => (words[k].head ? Math.abs(words[k].head - 1 - k) : 0);
  const left = 14 + 10 * Math.min(9, Math.max(1, ...words.map((one, k) => span(k)))), y = (k) => row * k + 16;
  const svg = drawn("svg", { viewBox: `0 0 ${left + 260} ${row * words.length + 8}`, width: "100%", role: "img", "aria-label": describe(words) });
  words.forEach((one, k) => {
    svg.append(drawn("text", { x: left + 8, y: y(k) + 5 }, one.word));
    svg.append(drawn("text", { x: left + 256, y: y(k) + 4, "text-anchor": "end", class: "relation" }, one.relation + (one.head ? "" : " (root)")));
    if (!one.head || one.head === k + 1) return;
    const far = left - 8 - 10 * Math.min(9, span(k)), from = y(one.head - 1), shift = from > y(k) ? 3 : -3;
    svg.append(drawn("path", { d: `M ${left} ${from - shift} H ${far} V ${y(k) + shift} H ${left - 4}` }));
    svg.append(drawn("polygon", { points: `${left - 5},${y(k) + shift - 3} ${left - 5},${y(k) + shift + 3} ${left + 2},${y(k) + shift}` }));
  });
  return svg;
}

const describe = (words) => words.map((one) => `${one.word} (${one.relation}) → ${one.head ? words[one.head - 1].word : "root"}`).join("; ");

function arcs(words) {
  if (matchMedia("(max-width: 640px)").matches) return uprightArcs(words);
  const gap = 26, size = 15, widths = words.map((one) => [...one.word].reduce((sum, c) => sum + (c > "\u2000" ? size : size * 0.6), 0));
  const middles = [];
  let x = 10;
  for (const [k, width] of widths.entries()) { middles.push(x + Math.max(width, 8 * words[k].relation.length) / 2); x += Math.max(width, 8 * words[k].relation.length) + gap; }
  const farthest = Math.max(1, ...words.map((one, k) => (one.head ? Math.abs(one.head - 1 - k) : 1)));
  const height = 40 + 26 * Math.min(farthest, 9), base = height + 14;
  const svg = drawn("svg", { width: x, height: base + 14, viewBox: `0 0 ${x} ${base + 14}`, role: "img", "aria-label": describe(words) });
  words.forEach((one, k) => {
    svg.append(drawn("text", { x: middles[k], y: base + 6, "text-anchor": "middle" }, one.word));
    const to = middles[k];
    if (!one.head) {
      svg.append(drawn("path", { d: `M ${to} 6 V ${height - 6}`, class: "root" }), drawn("text", { x: to + 5, y: 14, class: "relation" }, one.relation));
    } else {
      const from = middles[one.head - 1], high = height - 26 * Math.min(Math.abs(one.head - 1 - k), 9), side = Math.sign(to - from);
      svg.append(drawn("path", { d: `M ${from - 0 + 4 * side} ${height} V ${high + 8} Q ${from + 4 * side} ${high} ${from + 12 * side} ${high} H ${to - 8 * side} Q ${to} ${high} ${to} ${high + 8} V ${height - 6}` }));
      svg.append(drawn("text", { x: (from + to) / 2, y: high - 4, "text-anchor": "middle", class: "relation" }, one.relation));
    }
    svg.append(drawn("polygon", { points: `${to - 4},${height - 8} ${to + 4},${height - 8} ${to},${height}` }));
  });
  return svg;
}

function shown(record) {
  const place = $("answer");
  place.replaceChildren();
  if (record.spans) {
    place.append(marked(record.text, record.spans));
    if (!record.spans.length) place.append(made("p", _("No entity."), "sure"));
  } else if (record.words) {
    place.append(arcs(record.words));
  } else if (about.type === "question_answering") {
    if (record.answer) place.append(marked(record.text, [{ start: record.start, end: record.end, type: _("answer"), confidence: record.confidence }]));
    else place.append(made("div", _("No answer in the passage."), "big"), made("div", record.confidence == null ? "" : percent(record.confidence), "sure"));
  } else if (about.type === "dialogue_state") {
    const list = made("ul", undefined, "slots");
    list.append(...record.answer.map((slot) => made("li", slot)));
    place.append(record.answer.length ? list : made("p", _("No slot is filled yet."), "sure"));
  } else {
    if (record.subject) place.append(marked(record.text, [{ ...record.subject, type: _("subject") + " " + record.subject.type }, { ...record.object, type: _("object") + " " + record.object.type }]));
    const answer = Array.isArray(record.answer) ? record.answer.join(", ") : about.type === "regression" ? record.answer.toFixed(2) : String(record.answer);
    place.append(made("div", answer || _("No label."), "big"));
    if (record.probabilities) place.append(bars(record.probabilities));
  }
  $("raw").textContent = JSON.stringify(record, null, 2);
}

function complain(text) {
  $("answer").replaceChildren(made("p", text, "error"));
}

async function ask(event) {
  event.preventDefault();
  const button = document.querySelector("button");
  button.disabled = true;
  try {
    const reply = await fetch("/predict?text=1", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(form().read()) });
    const found = await reply.json();
    if (reply.ok) shown(found);
    else complain(found.error);
  } catch (error) {
    complain(error instanceof TypeError ? _("The service does not answer.") : error.message);
  } finally {
    button.disabled = false;
  }
}

async function begin() {
  about = await (await fetch("/schema")).json();
  $("model").textContent = about.model;
  $("about").textContent = _("{task}: {title}. Input: {input}.").replace("{task}", about.task).replace("{title}", _(about.title)).replace("{input}", _(about.input));
  document.title = `${about.task} – danseo`;
  form().make();
  $("form").addEventListener("submit", ask);
  $("form").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask(event); });
  document.querySelector("textarea, input").focus();
}

begin().catch(() => complain(_("The service does not answer.")));
