"use strict";
// Columns of every table sort on a click or a key: numbers by value, text by the reader's alphabet, nothing last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  const alphabet = new Intl.Collator(document.documentElement.lang, { numeric: true });
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const sign = down ? -1 : 1;
      const numeric = head.classList.contains("number");
      const key = (row) => {
        const cell = row.cells[column];
        return numeric ? ("v" in cell.dataset ? Number(cell.dataset.v) : NaN) : cell.textContent;
      };
      const keyed = original.map((row) => [key(row), row]);
      keyed.sort(([a], [b]) => {
        if (!numeric) return sign * alphabet.compare(a, b);
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return a === b ? 0 : a < b ? -sign : sign;
      });
      body.replaceChildren(...keyed.map(([, row]) => row));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = down ? "largest first" : "smallest first";
      document.getElementById("said").textContent = `Sorted by ${button.textContent}, ${numeric ? order : down ? "Z to A" : "A to Z"}`;
    });
  });
}
