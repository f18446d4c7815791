'use strict';
// Request and reply, over direct reply-to and over an exclusive queue.

const assert = require('assert');
const { freshName, run, text } = require('./scene');

async function serve(connection) {
  const channel = await connection.createChannel();
  const queue = freshName('rpc');
  await channel.assertQueue(queue, { durable: false, autoDelete: true });
  await channel.consume(queue, (request) => {
    const reply = Buffer.from(`${Number(text(request)) ** 2}`);
    const { replyTo, correlationId } = request.properties;
    channel.sendToQueue(replyTo, reply, { correlationId });
    channel.ack(request);
  });
  return queue;
}

async function callAll(channel, replyQueue, target) {
  const replies = new Map();
  let done;
  const all = new Promise((resolve) => { done = resolve; });
  await channel.consume(replyQueue, (reply) => {
    replies.set(Number(reply.properties.correlationId), Number(text(reply)));
    if (replies.size === 100) done();
  }, { noAck: true });
  for (let i = 0; i < 100; i++) {
    channel.sendToQueue(target, Buffer.from(`${i}`), { replyTo: replyQueue, correlationId: `${i}` });
  }
  await all;
  for (let i = 0; i < 100; i++) assert.strictEqual(replies.get(i), i * i);
}

run({
  async 'a hundred calls are answered over direct reply-to'(connection) {
    const target = await serve(connection);
    await callAll(await connection.createChannel(), 'amq.rabbitmq.reply-to', target);
  },

  async 'a hundred calls are answered over an exclusive queue'(connection) {
    const target = await serve(connection);
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await callAll(channel, queue, target);
  },

  async 'a request for a direct reply without a consumer for it is refused'(connection) {
    const channel = await connection.createChannel();
    const closed = new Promise((resolve) => channel.once('error', resolve));
    channel.sendToQueue(freshName('rpc'), Buffer.from('1'), { replyTo: 'amq.rabbitmq.reply-to' });
    assert.strictEqual((await closed).code, 406);
  },
});
