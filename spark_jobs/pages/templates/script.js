"use strict";
// Heads that sort, a box that filters by name or group, titles of days. Without it, pages lack only these.
const LONG = 10;
const FILTER = "filter";
const NEXT = {none: "ascending", ascending: "descending", descending: "none"};

for (const table of document.querySelectorAll("table.sortable")) {
  const bodies = [...table.tBodies].map(body => [body, [...body.rows]]);
  const bands = [...table.querySelectorAll("tr.band")];
  const rows = bodies.flatMap(([, rows]) => rows).filter(row => !bands.includes(row));
  const heads = [...table.tHead.rows[0].cells].filter(head => !head.querySelector("time, .axis"));
  let wanted = "";

  function sort(head) {
    const order = NEXT[head.ariaSort ?? "none"];
    for (const other of heads) other.ariaSort = other === head ? order : "none";
    if (order === "none") {
      for (const [body, rows] of bodies) body.append(...rows);
    } else {
      table.tBodies[0].append(...[...rows].sort(comparison(rows, head.cellIndex, order)));
    }
    showBands();
  }

  // The whole name of a group selects its sites alone: "tier 1" is not "tier 10".
  function filter(box, count) {
    wanted = box.value.trim().toLowerCase();
    const isGroup = wanted && rows.some(row => groupsOf(row).includes(wanted));
    for (const row of rows) row.hidden = !(isGroup ? groupsOf(row).includes(wanted) : nameOf(row).includes(wanted));
    count.value = wanted && `Only “${box.value.trim()}”: ${rows.filter(row => !row.hidden).length} of ${rows.length}`;
    showBands();
  }

  // The titles of bands fit only all rows in their first order.
  function showBands() {
    const isSorted = heads.some(head => head.ariaSort !== "none");
    for (const band of bands) band.hidden = isSorted || wanted !== "";
  }

  for (const head of heads) {
    // Not a <button>: on paper, Chromium leaves those out of heads that repeat on the next page.
    const button = document.createElement("span");
    button.role = "button";
    button.tabIndex = 0;
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(head));
    button.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort(head);
      }
    });
    head.append(button);
    head.ariaSort = "none";
  }
  if (rows.length > LONG) {
    const [label, box, count] = ["label", "input", "output"].map(tag => document.createElement(tag));
    label.className = "filter";
    label.append(rows.some(row => row.dataset.groups) ? "Filter by name or group " : "Filter by name ", box);
    box.type = "search";
    box.addEventListener("input", () => filter(box, count));
    (table.closest(".scroll") ?? table).before(label, " ", count);
    // The fragment of the address has the filter of the first table.
    if (label === document.querySelector(".filter")) {
      const read = () => {
        box.value = new URLSearchParams(location.hash.slice(1)).get(FILTER) ?? "";
        filter(box, count);
      };
      const write = () => {
        const hash = wanted && `#${new URLSearchParams([[FILTER, box.value.trim()]])}`;
        history.replaceState(null, "", hash || location.href.split("#")[0]);
      };
      box.addEventListener("input", write);
      addEventListener("hashchange", read);
      read();
    }
  }
}

// A day's title has its date, its availability, and what the legend says about the class of its cell.
const meanings = {};
for (const swatch of document.querySelectorAll(".legend .swatch")) {
  meanings[swatch.className.split(" ")[1]] ??= swatch.nextSibling.textContent.trim();
}
for (const row of document.querySelectorAll(".matrix tbody tr:not(.band)")) {
  const heads = row.closest("table").tHead.rows[0].cells;
  const name = row.cells[0].textContent.trim();
  for (const cell of row.cells) {
    const day = heads[cell.cellIndex].querySelector("time");
    if (!day) continue;
    const kind = cell.className.split(" ")[0].replace(/^d?$/, "m");
    const figure = cell.textContent.match(/[\d.]+/)?.[0] ?? (kind === "m" ? "100" : "");
    const words = [meanings[kind], ...(cell.classList.contains("d") ? ["partly in downtime"] : [])];
    if (figure) words.unshift(`availability ${figure} %`);
    cell.title = `${name}, ${day.dateTime}: ${words.join(", ")}`;
  }
}

// Rows without a value come last in either order.
function comparison(rows, column, order) {
  // A cell of data may have small print after its value.
  const text = row => {
    const cell = row.cells[column];
    return (cell?.matches("td") ? cell.firstChild : cell)?.textContent.trim() ?? "";
  };
  const number = row => parseFloat(text(row).match(/[+-]?[\d.]+/)?.[0]);
  const areNumbers = rows.every(row => /^[^\d\p{L}]*([\d.]+( of \d+)?)?$/u.test(text(row)));
  const isEmpty = areNumbers ? row => isNaN(number(row)) : row => text(row) === "";
  const compare = areNumbers
    ? (one, other) => number(one) - number(other)
    : (one, other) => text(one).localeCompare(text(other), "en", {numeric: true});
  const sign = order === "ascending" ? 1 : -1;
  return (one, other) => isEmpty(one) - isEmpty(other) || (isEmpty(one) ? 0 : sign * compare(one, other));
}

function groupsOf(row) {
  return (row.dataset.groups ?? "").toLowerCase().split("\n");
}

function nameOf(row) {
  const names = [...row.querySelectorAll("th, .text")].map(cell => cell.textContent);
  return [...names, row.dataset.groups].join(" ").toLowerCase();
}
