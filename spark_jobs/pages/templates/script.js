"use strict";
// Heads that sort, and a box that filters by name or group. Without this script, pages lack only these two.
const LONG = 10;
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

  function filter(box, count) {
    wanted = box.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !nameOf(row).includes(wanted);
    count.value = wanted && `${rows.filter(row => !row.hidden).length} of ${rows.length}`;
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
  }
}

// Rows without a value come last in either order.
function comparison(rows, column, order) {
  // A cell of data may have small print after its value.
  const text = row => {
    const cell = row.cells[column];
    return (cell?.matches("td") ? cell.firstChild : cell)?.textContent.trim() ?? "";
  };
  const number = row => parseFloat(text(row).replace(/^[^\d.]+/, ""));
  const areNumbers = rows.every(row => /^[^\d\p{L}]*([\d.]+( of \d+)?)?$/u.test(text(row)));
  const isEmpty = areNumbers ? row => isNaN(number(row)) : row => text(row) === "";
  const compare = areNumbers
    ? (one, other) => number(one) - number(other)
    : (one, other) => text(one).localeCompare(text(other), "en", {numeric: true});
  const sign = order === "ascending" ? 1 : -1;
  return (one, other) => isEmpty(one) - isEmpty(other) || (isEmpty(one) ? 0 : sign * compare(one, other));
}

function nameOf(row) {
  const names = [...row.querySelectorAll("th, .text")].map(cell => cell.textContent);
  return [...names, row.dataset.groups].join(" ").toLowerCase();
}
