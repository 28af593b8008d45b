// ioredis: HOST PORT CUT_PORT MODE
const assert = require("node:assert");
const { once } = require("node:events");
const net = require("node:net");
const { Redis } = require("ioredis");
const { version } = require("ioredis/package.json");

const COUNT = 1000;

// Has the proxy cut all connections.
async function cut(host, port) {
  const socket = net.connect(port, host);
  await once(socket, "data");
  socket.destroy();
}

async function main([host, port, cutPort, mode]) {
  const client = new Redis({ host, port: Number(port) });
  client.on("error", () => {});
  assert.equal(await client.ping(), "PONG");
  if (mode === "full") {
    assert.equal(await client.set("farcore:io", "value"), "OK");
    assert.equal(await client.get("farcore:io"), "value");
    const pipeline = client.pipeline();
    for (let i = 0; i < COUNT; i++) pipeline.set(`farcore:io:${i}`, i);
    const answers = await pipeline.exec();
    assert.equal(answers.length, COUNT);
    assert.ok(answers.every(([error, answer]) => error === null && answer === "OK"));
    const transaction = await client.multi().incr("farcore:count").get("farcore:io:9").exec();
    assert.deepEqual(transaction[1], [null, "9"]);
    const ready = new Promise((resolve) => client.once("ready", resolve));
    await cut(host, Number(cutPort));
    await ready;
    assert.equal(await client.get("farcore:io:999"), "999");
  }
  client.disconnect();
  console.log(`ioredis ${version}: connect, set, get, pipeline of ${COUNT}, MULTI, reconnect`);
}

main(process.argv.slice(2)).catch((error) => {
  console.log(String(error.stack).replaceAll("\n", " "));
  process.exit(1);
});
