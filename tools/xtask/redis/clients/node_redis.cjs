// node-redis: HOST PORT CUT_PORT MODE
const assert = require("node:assert");
const { once } = require("node:events");
const net = require("node:net");
const { createClient } = require("redis");
const { version } = require("redis/package.json");

const COUNT = 1000;

// Has the proxy cut all connections.
async function cut(host, port) {
  const socket = net.connect(port, host);
  await once(socket, "data");
  socket.destroy();
}

async function main([host, port, cutPort, mode]) {
  const client = createClient({ socket: { host, port: Number(port) } });
  // A lost connection is an event here, and would end the program without a listener.
  client.on("error", () => {});
  await client.connect();
  assert.equal(await client.ping(), "PONG");
  if (mode === "full") {
    assert.equal(await client.set("farcore:node", "value"), "OK");
    assert.equal(await client.get("farcore:node"), "value");
    // Calls of one turn are sent as one pipeline.
    const calls = Array.from({ length: COUNT }, (_, i) => client.set(`farcore:node:${i}`, `${i}`));
    assert.ok((await Promise.all(calls)).every((answer) => answer === "OK"));
    const transaction = await client.multi().incr("farcore:count").get("farcore:node:9").exec();
    assert.equal(transaction[1], "9");
    const ready = new Promise((resolve) => client.once("ready", resolve));
    await cut(host, Number(cutPort));
    await ready;
    assert.equal(await client.get("farcore:node:999"), "999");
    const other = createClient({ RESP: 2, socket: { host, port: Number(port) } });
    await other.connect();
    assert.equal(await other.get("farcore:node:1"), "1");
    await other.close();
  }
  await client.close();
  console.log(
    `node-redis ${version}: connect, set, get, pipeline of ${COUNT}, MULTI, reconnect, RESP2 and RESP3`,
  );
}

main(process.argv.slice(2)).catch((error) => {
  console.log(String(error.stack).replaceAll("\n", " "));
  process.exit(1);
});
