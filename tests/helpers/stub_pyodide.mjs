// A stand-in for the runtime: it prints one line, or fails as the real one does, and holds one estimate.
export async function loadPyodide({ indexURL }) {
  const lacks = /without-(\w+)/.exec(indexURL)?.[1];
  let write;
  return {
    loadPackage: async (what, { errorCallback }) => {
      if (lacks && String(what).includes(lacks)) errorCallback(`Failed to load ${lacks}`);
    },
    runPython: (code) => {
      if (lacks && code === `import ${lacks}`) throw new Error(`ModuleNotFoundError: No module named '${lacks}'\n`);
    },
    toPy: () => ({ destroy() {} }),
    setStdout: ({ batched }) => (write = batched),
    setStderr: () => {},
    globals: {
      get: () => () =>
        JSON.stringify([{ name: "est", columns: ["cell", "estimate"], rows: [["sex=<b>f", "55"]], left: 3 }]),
    },
    runPythonAsync: async (code) => {
      while (code.includes("while True"));
      if (code.includes("1/0"))
        throw new Error(
          'Traceback (most recent call last):\n  File "/lib/base.py", line 5, in run\n' +
            '  File "<exec>", line 1, in <module>\nZeroDivisionError: division by zero\n',
        );
      write("printed");
    },
  };
}
