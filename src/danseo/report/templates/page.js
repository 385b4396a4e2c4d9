(() => {
  "use strict";
  const words = JSON.parse(document.body.dataset.words), _ = (text) => words[text] ?? text;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // One page at a time; without scripts all of them are there, one below the other.
  const pages = all(".page");
  const turn = () => {
    if (!pages.length) return;
    const wanted = decodeURIComponent(location.hash.slice(1));
    const current = pages.find((page) => page.id === wanted) || pages[0];
    pages.forEach((page) => { page.hidden = page !== current; });
    all("nav a").forEach((link) => {
      if (link.getAttribute("href") === "#" + current.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    all("[data-go]").forEach((choice) => {
      const value = "#" + current.id;
      choice.value = all("option", choice).some((option) => option.value === value) ? value : "";
    });
    scrollTo(0, 0);
  };
  addEventListener("hashchange", () => { turn(); document.getElementById("main").focus({ preventScroll: true }); });
  turn();
  all("[data-go]").forEach((choice) => choice.addEventListener("change", () => {
    if (choice.value) location.href = choice.value;
  }));

  // Sorting: numbers by value, texts in Korean order; a second press turns it round.
  const order = new Intl.Collator(["ko", "en"], { numeric: true });
  const sort = (header) => {
    const table = header.closest("table"), place = [...header.parentNode.children].indexOf(header);
    const down = header.classList.contains("number") ? header.getAttribute("aria-sort") !== "descending"
      : header.getAttribute("aria-sort") === "ascending";
    all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    [...table.tBodies].forEach((body) => sortBody(body, place, header.classList.contains("number"), down));
  };
  const sortBody = (body, place, number, down) => {
    const rows = [...body.rows].filter((row) => !row.classList.contains("heading")).map((row) => {
      const cell = row.cells[place];
      return { row, value: number ? parseFloat(cell.dataset.v ?? cell.textContent.replace(/,/g, "")) : cell.textContent };
    });
    rows.sort((a, b) => {
      if (!number) return order.compare(a.value, b.value) * (down ? -1 : 1);
      if (isNaN(a.value) || isNaN(b.value)) return isNaN(a.value) - isNaN(b.value);
      return (a.value - b.value) * (down ? -1 : 1);
    });
    rows.forEach(({ row }) => body.append(row));
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-sort]");
    if (button) sort(button.closest("th"));
    if (event.target.closest("[data-theme-button]")) {
      const root = document.documentElement;
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    }
  });

  // Filtering rows and examples.
  const filterExamples = (box) => {
    const text = box.querySelector("[data-filter=examples]").value.trim().toLowerCase();
    const tag = (box.querySelector("[data-tag]") || {}).value || "";
    const examples = all(".example", box);
    examples.forEach((example) => {
      example.hidden = !(example.textContent.toLowerCase().includes(text) && example.dataset.tags.includes(tag));
    });
    const left = examples.filter((example) => !example.hidden).length;
    box.querySelector(".count").textContent = left < examples.length ? _("{n} of {all}").replace("{n}", left).replace("{all}", examples.length) : "";
  };
  const filter = (event) => {
    const field = event.target;
    if (field.dataset && field.dataset.filter === "rows") {
      const text = field.value.trim().toLowerCase();
      all("tbody tr:not(.heading)", field.closest("figure")).forEach((row) => {
        row.hidden = !row.textContent.toLowerCase().includes(text);
      });
    } else if (field.matches && field.matches("[data-filter=examples],[data-tag]")) filterExamples(field.closest(".examples"));
  };
  document.addEventListener("input", filter);
  document.addEventListener("change", filter);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const field = all("input[type=search]").find((each) => each.offsetParent && !each.closest("details:not([open])"));
    if (field) { event.preventDefault(); field.focus(); }
  });
})();
