#!/usr/bin/env node
// An agent behind a command: the last legal action.
const lines = require("readline").createInterface({ input: process.stdin });
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (message.type === "hello") say({ type: "ready", serves: "many" });
  if (message.type === "act") say({ action: message.legal[message.legal.length - 1] });
});
