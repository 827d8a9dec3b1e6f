// The page: an area for the lines, two buttons, what the lines print, and a table for each of their estimates.

const place = document.querySelector(".try-it");
const [lines, go, stop, status, output, tables] = ["lines", "run", "stop", "status", "output", "tables"].map((name) =>
  place.querySelector(`[data-part=${name}]`),
);
const places = {
  runtime: new URL(place.dataset.runtime, document.baseURI).href,
  wheel: new URL(place.dataset.wheel, document.baseURI).href,
};
let worker;

function idle(text) {
  status.textContent = text;
  go.disabled = false;
  stop.disabled = true;
}

function fail(text) {
  output.textContent += `${text}\n`;
  idle("It did not run to its end; what went wrong is below.");
}

function tableOf({ name, columns, rows, left }) {
  const wrapper = document.createElement("div");
  const table = wrapper.appendChild(document.createElement("table"));
  wrapper.className = "table-wrapper";
  table.className = "docutils";
  table.createCaption().textContent = left ? `${name}, the first ${rows.length} cells; ${left} more` : name;
  const head = table.createTHead().insertRow();
  for (const column of columns) {
    const cell = head.appendChild(document.createElement("th"));
    cell.scope = "col";
    cell.textContent = column;
  }
  const body = table.createTBody();
  for (const row of rows) {
    const own = body.insertRow();
    for (const text of row) own.insertCell().textContent = text;
  }
  return wrapper;
}

const heard = {
  status: (text) => (status.textContent = text),
  text: (text) => (output.textContent += `${text}\n`),
  tables: (found) => {
    tables.replaceChildren(...found.map(tableOf));
    idle(found.length ? "Done." : "Done. No name holds an estimate, so there is no table.");
  },
  failed: fail,
};

function begin() {
  output.textContent = "";
  tables.replaceChildren();
  go.disabled = true;
  stop.disabled = false;
  if (!worker) {
    worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => heard[data.kind](data.what);
    worker.onerror = (event) => {
      end();
      fail(event.message || "The script that runs Python could not be loaded.");
    };
  }
  worker.postMessage({ code: lines.value, places });
}

function end() {
  worker?.terminate();
  worker = undefined;
}

async function look() {
  let found = false;
  try {
    found = (await fetch(`${places.runtime}pyodide.mjs`, { method: "HEAD" })).ok;
  } catch {
    // nothing answers, which is as if it were not there
  }
  if (!found) {
    status.textContent =
      `There is no Python beside this page: ${places.runtime}pyodide.mjs is not served. ` +
      "Put a Pyodide with its NumPy and SciPy there, as said below, and load this page again.";
    return;
  }
  idle("Ready. The first run loads some 35 MB from beside this page.");
}

go.addEventListener("click", begin);
stop.addEventListener("click", () => {
  end();
  idle("Stopped. The next run starts Python anew.");
});
look();
