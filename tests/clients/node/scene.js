'use strict';
// What every program here starts from: a connection, names of its own, a deadline, clean-up.

const amqp = require('amqplib');
const crypto = require('crypto');

const DEADLINE_MS = 30000;
const url = process.argv[2];
const names = [];

function freshName(prefix) {
  const name = `clients.node.${prefix}.${crypto.randomBytes(6).toString('hex')}`;
  names.push(name);
  return name;
}

async function deleteNames() {
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  for (const name of names) {
    await channel.deleteQueue(name);
    await channel.deleteExchange(name);
  }
  await connection.close();
}

// Runs each check on a connection of its own; the first failure ends the program with code 1.
async function run(checks) {
  for (const [name, check] of Object.entries(checks)) {
    const expired = setTimeout(() => {
      console.error(`FAILED ${name}: not done after ${DEADLINE_MS} ms`);
      process.exit(1);
    }, DEADLINE_MS);
    try {
      const connection = await amqp.connect(url);
      await check(connection);
      await connection.close();
      console.log(`ok ${name}`);
    } catch (error) {
      console.error(`FAILED ${name}: ${error.stack}`);
      process.exitCode = 1;
      break;
    } finally {
      clearTimeout(expired);
    }
  }
  await deleteNames();
  process.exit();
}

// Consumes until `count` messages came, then cancels; `onMessage` may settle them.
async function collect(channel, queue, count, options = { noAck: true }, onMessage = () => {}) {
  const messages = [];
  await new Promise((resolve, reject) => {
    channel
      .consume(queue, (message) => {
        if (message === null) return reject(new Error('cancelled by the server'));
        messages.push(message);
        onMessage(message, messages.length);
        if (messages.length === count) resolve();
      }, options)
      .catch(reject);
  });
  await channel.cancel(messages[0].fields.consumerTag);
  return messages;
}

// Asks again until the answer is true; each question is a round trip to the server.
async function eventually(condition, what) {
  const deadline = Date.now() + DEADLINE_MS / 2;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited too long for ${what}`);
  }
}

const text = (message) => message.content.toString();
const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

module.exports = { amqp, collect, eventually, freshName, once, run, text, url };
