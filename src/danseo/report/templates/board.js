(() => {
  "use strict";
  // Asks every few seconds what goes on; the server answers 304 where nothing changed, and what is shown is replaced.
  const body = document.body, box = document.getElementById("live"), key = body.dataset.key;
  let version = body.dataset.seen, shown = "";
  const words = JSON.parse(body.dataset.words), _ = (text) => words[text] ?? text;
  const make = (name, text) => { const found = document.createElement(name); if (text !== undefined) found.textContent = text; return found; };
  const time = (seconds) => seconds >= 5400 ? (seconds / 3600).toFixed(1) + " h" : seconds >= 90 ? Math.round(seconds / 60) + " min" : seconds + " s";
  const row = (one) => {
    const line = make("tr"), name = make("td"), link = make("a", one.run), bar = make("td"), progress = make("progress");
    const place = new URL("/" + one.page.split("/").map(encodeURIComponent).join("/"), location.href);
    place.search = new URL(body.dataset.live, location.href).search;
    link.href = place.href; name.append(link);
    progress.max = 100; progress.value = one.percent; progress.setAttribute("aria-label", _("progress of {run}").replace("{run}", one.run));
    bar.append(progress, " " + one.percent + " %");
    const state = one.alive ? time(one.left_seconds) : _("stopped, no sign of life for {time}").replace("{time}", time(one.seconds_since));
    line.append(name, make("td", one.task), bar, make("td", _("{n} of {all}").replace("{n}", one.step).replace("{all}", one.total)), make("td", state),
      make("td", one.score == null ? "–" : one.score.toFixed(2)), make("td", one.loss == null ? "–" : one.loss.toFixed(3)));
    return line;
  };
  const draw = (found) => {
    const parts = [];
    if (found.running.length) {
      const table = make("table"), head = make("tr"), wrap = make("div");
      [_("run"), _("task"), _("progress"), _("step"), _("time left"), _("score"), _("loss")].forEach((each) => head.append(make("th", each)));
      table.append(make("thead"), make("tbody"));
      table.tHead.append(head);
      table.tBodies[0].append(...found.running.map(row));
      wrap.className = "scroll"; wrap.append(table);
      parts.push(make("h3", _("In training")), wrap);
    }
    found.sweeps.forEach((sweep) => {
      // the states: _("running") _("queued") _("lost") _("stopped") _("failed") _("done")
      const states = Object.entries(sweep.states).map(([state, count]) => _(state) + " " + count).join(", ");
      parts.push(make("p", (sweep.alive ? _("sweep {name}") : _("sweep {name}, nothing runs")).replace("{name}", sweep.sweep) + ": " + states));
    });
    box.replaceChildren(...parts);
    box.hidden = !parts.length;
  };
  const refresh = async () => {
    const answer = await fetch(location.href, { cache: "no-cache" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    ["#content", "nav ul"].forEach((place) => {
      const now = document.querySelector(place), next = fresh.querySelector(place);
      if (now && next && !now.contains(document.activeElement)) now.replaceChildren(...next.childNodes);
    });
  };
  const isBusy = () => document.getElementById("content").contains(document.activeElement) || document.querySelector("#content details[open]");
  const ask = async () => {
    try {
      const answer = await fetch(body.dataset.live, { cache: "no-cache" });
      const text = answer.ok ? await answer.text() : "";
      const isNew = text !== shown, found = text ? JSON.parse(text) : null;
      if (found && isNew) draw(found);
      shown = text;
      const isMine = found && isNew && found.running.some((one) => one.page === key);
      if (found && (found.version !== version || isMine) && !isBusy()) {
        await refresh();
        version = found.version;
      }
    } catch (error) {
      box.replaceChildren(make("p", _("the board does not answer; is it still running?")));
      box.hidden = false;
      shown = "";
    }
    setTimeout(ask, document.hidden ? 15000 : 3000);
  };
  ask();
})();
