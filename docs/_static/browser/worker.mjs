// Python runs here, beside the page, so that the page stays awake and can end it.
import { run, start } from "./runner.mjs";

let python;

self.onmessage = async ({ data: { code, places } }) => {
  const say = (kind, what) => self.postMessage({ kind, what });
  try {
    if (!python) {
      const { loadPyodide } = await import(`${places.runtime}pyodide.mjs`);
      const answers = await (await fetch(new URL("answers.py", import.meta.url))).text();
      python = await start(loadPyodide, { ...places, answers }, (text) => say("status", text));
    }
    say("status", "Running …");
    say("tables", await run(python, code, (text) => say("text", text)));
  } catch (error) {
    say("failed", String(error?.message ?? error));
  }
};
