// Bull: HOST PORT JOBS [ROLE]

const Bull = require("bull");
const Redis = require("ioredis");
const { version } = require("bull/package.json");
const { assert, connection, kill, report, role, run, sleep, startWorker, waitUntil } =
  require("./support.cjs");

const redis = new Redis(connection);
const counted = async (name) => Number((await redis.get(`count:${name}`)) ?? 0);
// A lock of a second, so that a killed worker's job is soon another's.
const settings = { lockDuration: 1000, lockRenewTime: 300, stalledInterval: 500 };
const open = (name, options) => new Bull(name, { redis: connection, settings, ...options });

function perform(queue, concurrency = 5) {
  const handlers = {
    add: ({ data }) => data.a + data.b,
    count: ({ data }) => redis.incr(`count:${data.name}`),
    flaky: async ({ data }) => {
      if ((await redis.incr(`count:${data.name}`)) <= data.times) {
        throw new Error(`${data.name} fails`);
      }
      return data.name;
    },
    order: async ({ data }) => {
      await redis.rpush("order", data.name);
      return data.name;
    },
    slow: async ({ data }) => {
      if ((await redis.incr(`count:${data.name}`)) === 1) await sleep(100_000);
      return "slow";
    },
  };
  queue.process("*", concurrency, async (job) => handlers[job.name](job));
}

async function results(queue) {
  const job = await queue.add("add", { a: 2, b: 3 });
  assert.equal(await job.finished(), 5);
  assert.equal(await job.getState(), "completed");
}

async function failures(queue) {
  const backoff = { type: "exponential", delay: 100 };
  let job = await queue.add("flaky", { name: "again", times: 2 }, { attempts: 3, backoff });
  assert.equal(await job.finished(), "again");
  assert.equal(await counted("again"), 3);
  job = await queue.add("flaky", { name: "never", times: 2 }, { attempts: 2 });
  await assert.rejects(job.finished(), /never fails/);
  assert.deepEqual((await queue.getFailed()).map((failed) => failed.id), [job.id]);
  await job.retry();
  await waitUntil("the retried job", async () => (await job.getState()) === "completed");
  assert.equal((await queue.getJob(job.id)).returnvalue, "never");
}

async function times(queue) {
  const began = Date.now();
  const job = await queue.add("add", { a: 1, b: 1 }, { delay: 1000 });
  assert.equal(await job.getState(), "delayed");
  assert.equal(await job.finished(), 2);
  assert.ok(Date.now() - began >= 990, "too early");
  await queue.add("count", { name: "every" }, { repeat: { every: 300 } });
  await queue.add("count", { name: "cron" }, { repeat: { cron: "* * * * * *" } });
  await waitUntil("three runs", async () => (await counted("every")) >= 3);
  await waitUntil("two runs of cron", async () => (await counted("cron")) >= 2);
  const repeated = await queue.getRepeatableJobs();
  assert.equal(repeated.length, 2);
  for (const { key } of repeated) await queue.removeRepeatableByKey(key);
  assert.equal(await queue.getRepeatableCount(), 0);
}

async function cancels(queue) {
  const job = await queue.add("count", { name: "cancelled" }, { delay: 300 });
  await job.remove();
  await sleep(500);
  assert.equal(await counted("cancelled"), 0);
}

// The order of priorities, in a queue that is paused until all jobs are there.
async function priorities() {
  const queue = open("ordered");
  await queue.pause();
  for (const [name, priority] of [["low", 9], ["high", 1], ["middle", 5]]) {
    await queue.add("order", { name }, { priority });
  }
  assert.equal(await queue.getPausedCount(), 3);
  perform(queue, 1);
  await queue.resume();
  await waitUntil("all jobs", async () => (await queue.getCompletedCount()) === 3);
  assert.deepEqual(await redis.lrange("order", 0, -1), ["high", "middle", "low"]);
  await queue.close();
}

async function limited() {
  const queue = open("limited", { limiter: { max: 2, duration: 500 } });
  await queue.addBulk([...Array(6)].map(() => ({ name: "add", data: { a: 1, b: 1 } })));
  const began = Date.now();
  perform(queue);
  await waitUntil("the limited jobs", async () => (await queue.getCompletedCount()) === 6);
  assert.ok(Date.now() - began >= 900, "faster than its limit");
  await queue.close();
}

async function killed() {
  const queue = open("killed");
  const child = startWorker("killed");
  const job = await queue.add("slow", { name: "lost" });
  await waitUntil("a start", async () => (await counted("lost")) === 1);
  await kill(child);
  assert.equal(await job.getState(), "active");
  perform(queue);
  assert.equal(await job.finished(), "slow");
  assert.equal(await counted("lost"), 2);
  await queue.close();
}

async function load(jobs) {
  const queue = new Bull("bulk", { redis: connection });
  const wrong = [];
  let finished = 0;
  queue.on("completed", (job, value) => {
    finished += 1;
    if (value !== job.data.a + 1) wrong.push(job.id);
  });
  const began = Date.now();
  perform(queue, 50);
  for (let first = 0; first < jobs; first += 500) {
    const count = Math.min(500, jobs - first);
    await queue.addBulk(
      [...Array(count)].map((_, i) => ({ name: "add", data: { a: first + i, b: 1 } })),
    );
  }
  await waitUntil("all jobs", () => finished === jobs, 120_000);
  const ms = Date.now() - began;
  assert.deepEqual(wrong, []);
  assert.equal(await queue.getCompletedCount(), jobs);
  assert.equal((await queue.clean(0, "completed", 100)).length, Math.min(100, jobs));
  await queue.obliterate({ force: true });
  assert.equal((await redis.keys("bull:bulk:[0-9]*")).length, 0);
  await queue.close();
  return ms;
}

async function main(jobs) {
  if (role !== undefined) {
    perform(open(role));
    return new Promise(() => {});
  }
  await redis.flushall();
  const queue = open("behaviours");
  perform(queue);
  await results(queue);
  await failures(queue);
  await times(queue);
  await cancels(queue);
  await queue.close();
  await priorities();
  await limited();
  await killed();
  const ms = await load(jobs);
  const done =
    "result, retry, delay, repeat, cron, remove, priority, rate limit, killed worker, clean, " +
    "obliterate";
  report("bull", version, done, jobs, ms);
}

run(main);
