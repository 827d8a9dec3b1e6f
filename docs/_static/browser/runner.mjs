// Starts a Python for browsers with blue-solvers in it, and runs lines there. Nothing here knows of pages or workers.

/** A Python that has NumPy, SciPy and our wheel; every step is said, and whatever fails is an Error that names it. */
export async function start(loadPyodide, { runtime, wheel, answers }, say) {
  say("Starting Python …");
  const python = await loadPyodide({ indexURL: runtime });
  const complaints = [];
  const options = { errorCallback: (text) => complaints.push(text), messageCallback: () => {} };
  for (const [what, packages, name] of [
    ["NumPy", ["numpy"], "numpy"],
    ["SciPy", ["scipy"], "scipy"],
    ["blue-solvers", wheel, "blue_solvers"],
  ]) {
    say(`Loading ${what} …`);
    try {
      await python.loadPackage(packages, options);
      python.runPython(`import ${name}`);
    } catch (error) {
      throw new Error([`${what} could not be loaded.`, ...complaints, told(error)].join("\n"));
    }
  }
  python.runPython(answers);
  return python;
}

/** Run lines in names of their own; `write` gets what they print, line by line. The tables of their estimates. */
export async function run(python, code, write) {
  const names = python.toPy(new Map([["__name__", "__main__"]]));
  python.setStdout({ batched: write });
  python.setStderr({ batched: write });
  try {
    await python.runPythonAsync(code, { globals: names });
    const answers = python.globals.get("answers");
    return JSON.parse(answers(names));
  } catch (error) {
    throw new Error(told(error));
  } finally {
    names.destroy?.();
  }
}

/** What went wrong, from the reader's own lines on. */
export function told(error) {
  const text = String(error?.message ?? error).trimEnd();
  const own = text.indexOf('  File "<exec>"');
  return own < 0 ? text : `Traceback (most recent call last):\n${text.slice(own)}`;
}
