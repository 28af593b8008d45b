// BullMQ: HOST PORT JOBS [ROLE]

const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const Redis = require("ioredis");
const { version } = require("bullmq/package.json");
const { assert, connection, kill, report, role, run, sleep, startWorker, waitUntil } =
  require("./support.cjs");

const redis = new Redis(connection);
const counted = async (name) => Number((await redis.get(`count:${name}`)) ?? 0);

async function perform(job) {
  const { name, a, b, times } = job.data;
  switch (job.name) {
    case "add":
      return a + b;
    case "count":
      return redis.incr(`count:${name}`);
    case "flaky":
      if ((await redis.incr(`count:${name}`)) <= times) throw new Error(`${name} fails`);
      return name;
    case "progress":
      for (const part of [25, 50, 100]) await job.updateProgress(part);
      await job.log("a line");
      return "progressed";
    case "parent":
      return Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0);
    case "order":
      await redis.rpush("order", name);
      return name;
    case "slow":
      if ((await redis.incr(`count:${name}`)) === 1) await sleep(100_000);
      return "slow";
  }
  throw new Error(`no job ${job.name}`);
}

// A lock of a second, so that a killed worker's job is soon another's.
const workerOptions = { connection, lockDuration: 1000, stalledInterval: 500, concurrency: 5 };

async function results(queue, events) {
  let job = await queue.add("add", { a: 2, b: 3 });
  assert.equal(await job.waitUntilFinished(events, 30_000), 5);
  assert.equal(await job.getState(), "completed");
  const seen = [];
  events.on("progress", ({ data }) => seen.push(data));
  job = await queue.add("progress", {});
  assert.equal(await job.waitUntilFinished(events, 30_000), "progressed");
  await waitUntil("the events of progress", () => seen.length === 3);
  assert.deepEqual(seen, [25, 50, 100]);
  assert.deepEqual((await queue.getJobLogs(job.id)).logs, ["a line"]);
  const flow = new FlowProducer({ connection });
  const children = [1, 2, 3].map((a) => ({
    name: "add",
    queueName: "behaviours",
    data: { a, b: 10 },
  }));
  const tree = await flow.add({ name: "parent", queueName: "behaviours", data: {}, children });
  assert.equal(await tree.job.waitUntilFinished(events, 30_000), 36);
  await flow.close();
}

async function failures(queue, events) {
  const backoff = { type: "exponential", delay: 100 };
  let job = await queue.add("flaky", { name: "again", times: 2 }, { attempts: 3, backoff });
  assert.equal(await job.waitUntilFinished(events, 30_000), "again");
  assert.equal(await counted("again"), 3);
  job = await queue.add("flaky", { name: "never", times: 2 }, { attempts: 2 });
  await assert.rejects(job.waitUntilFinished(events, 30_000), /never fails/);
  assert.deepEqual(
    (await queue.getFailed()).map((failed) => [failed.id, failed.attemptsMade]),
    [[job.id, 2]],
  );
  await job.retry("failed");
  assert.equal(await job.waitUntilFinished(events, 30_000), "never");
}

async function times(queue, events) {
  const began = Date.now();
  const job = await queue.add("add", { a: 1, b: 1 }, { delay: 1000 });
  assert.equal(await job.getState(), "delayed");
  assert.equal(await job.waitUntilFinished(events, 30_000), 2);
  assert.ok(Date.now() - began >= 990, "too early");
  const template = { name: "count", data: { name: "every" } };
  await queue.upsertJobScheduler("every", { every: 300 }, template);
  await queue.upsertJobScheduler("cron", { pattern: "* * * * * *" }, {
    name: "count",
    data: { name: "cron" },
  });
  await waitUntil("three runs", async () => (await counted("every")) >= 3);
  await waitUntil("two runs of cron", async () => (await counted("cron")) >= 2);
  assert.equal((await queue.getJobSchedulers()).length, 2);
  for (const id of ["every", "cron"]) assert.equal(await queue.removeJobScheduler(id), true);
  assert.equal((await queue.getJobSchedulers()).length, 0);
}

async function cancels(queue, events) {
  const job = await queue.add("count", { name: "cancelled" }, { delay: 500 });
  await job.remove();
  assert.equal(await job.getState(), "unknown");
  const same = { deduplication: { id: "one" }, delay: 300 };
  const first = await queue.add("count", { name: "once" }, same);
  assert.equal((await queue.add("count", { name: "once" }, same)).id, first.id);
  await first.waitUntilFinished(events, 30_000);
  await sleep(500);
  assert.equal(await counted("cancelled"), 0);
  assert.equal(await counted("once"), 1);
}

// The order of priorities, in a queue that is paused until all jobs are there.
async function priorities() {
  const queue = new Queue("ordered", { connection });
  const worker = new Worker("ordered", perform, { ...workerOptions, concurrency: 1 });
  await worker.waitUntilReady();
  await queue.pause();
  for (const [name, priority] of [["low", 9], ["high", 1], ["first", undefined], ["middle", 5]]) {
    await queue.add("order", { name }, { priority });
  }
  assert.equal(await queue.count(), 4);
  await queue.resume();
  await waitUntil("all jobs", async () => (await queue.getCompletedCount()) === 4);
  assert.deepEqual(await redis.lrange("order", 0, -1), ["first", "high", "middle", "low"]);
  await worker.close();
  await queue.close();
}

async function limited() {
  const limited = new Queue("limited", { connection });
  await limited.addBulk([...Array(6)].map(() => ({ name: "add", data: { a: 1, b: 1 } })));
  const began = Date.now();
  const limiter = { max: 2, duration: 500 };
  const worker = new Worker("limited", perform, { ...workerOptions, limiter });
  await waitUntil("the limited jobs", async () => (await limited.getCompletedCount()) === 6);
  assert.ok(Date.now() - began >= 900, "faster than its limit");
  await worker.close();
  await limited.obliterate();
  await limited.close();
}

async function killed() {
  const queue = new Queue("killed", { connection });
  const events = new QueueEvents("killed", { connection });
  await events.waitUntilReady();
  const child = startWorker("killed");
  const job = await queue.add("slow", { name: "lost" });
  await waitUntil("a start", async () => (await counted("lost")) === 1);
  await kill(child);
  assert.equal(await job.getState(), "active");
  const worker = new Worker("killed", perform, workerOptions);
  assert.equal(await job.waitUntilFinished(events, 30_000), "slow");
  assert.equal(await counted("lost"), 2);
  await Promise.all([worker.close(), events.close()]);
  await queue.close();
}

async function load(jobs) {
  const queue = new Queue("bulk", { connection });
  const worker = new Worker("bulk", perform, { connection, concurrency: 50 });
  const wrong = [];
  let finished = 0;
  worker.on("completed", (job, value) => {
    finished += 1;
    if (value !== job.data.a + 1) wrong.push(job.id);
  });
  const began = Date.now();
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
  assert.equal((await queue.clean(0, 100, "completed")).length, Math.min(100, jobs));
  await worker.close();
  await queue.obliterate({ force: true });
  assert.equal((await redis.keys("bull:bulk:*")).length, 0);
  await queue.close();
  return ms;
}

async function main(jobs) {
  if (role !== undefined) {
    new Worker(role, perform, workerOptions);
    return new Promise(() => {});
  }
  await redis.flushall();
  const queue = new Queue("behaviours", { connection });
  const events = new QueueEvents("behaviours", { connection });
  await events.waitUntilReady();
  const worker = new Worker("behaviours", perform, workerOptions);
  await results(queue, events);
  await failures(queue, events);
  await times(queue, events);
  await cancels(queue, events);
  await priorities();
  await limited();
  await killed();
  await Promise.all([worker.close(), events.close()]);
  await queue.close();
  const ms = await load(jobs);
  const done =
    "result, progress, flow, retry, delay, schedule, cron, remove, deduplication, priority, " +
    "rate limit, killed worker, clean, obliterate";
  report("bullmq", version, done, jobs, ms);
}

run(main);
