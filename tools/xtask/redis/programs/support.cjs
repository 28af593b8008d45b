// What the drivers in JavaScript share. A driver receives HOST PORT JOBS; it deletes the server's
// data. With a fourth argument it is a worker of its own, in a process that the driver kills.

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");

const [host, port, jobs, role] = process.argv.slice(2);
const connection = { host, port: Number(port) };

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Waits until `condition` resolves to something true, and returns it.
async function waitUntil(what, condition, limit = 30_000) {
  const end = Date.now() + limit;
  while (Date.now() < end) {
    const value = await condition();
    if (value) return value;
    await sleep(20);
  }
  throw new Error(`not within ${limit} ms: ${what}`);
}

// Starts this driver once more, as a worker.
function startWorker(name) {
  const child = spawn(process.execPath, [process.argv[1], host, port, jobs, name], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  process.on("exit", () => child.kill("SIGKILL"));
  return child;
}

// Kills a worker, so that it cannot tell the server.
async function kill(child) {
  const ended = new Promise((resolve) => child.on("exit", resolve));
  child.kill("SIGKILL");
  await ended;
}

function run(main) {
  main(Number(jobs)).then(
    () => process.exit(0),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

function report(name, version, done, count, ms) {
  const rate = Math.round((count / ms) * 1000);
  console.log(`${name} ${version}: ${done}; ${count} jobs, ${rate} jobs/s`);
}

module.exports = { assert, connection, kill, report, role, run, sleep, startWorker, waitUntil };
