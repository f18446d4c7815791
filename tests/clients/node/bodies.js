'use strict';
// Bodies of many sizes and properties of every kind come back unchanged.

const assert = require('assert');
const { amqp, collect, freshName, run, url } = require('./scene');

async function roundTrip(channel, queue, body, options) {
  channel.sendToQueue(queue, body, options);
  await channel.waitForConfirms();
  const message = await channel.get(queue, { noAck: true });
  assert.notStrictEqual(message, false);
  return message;
}

run({
  async 'bodies from nothing to ten megabytes'(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    for (const size of [0, 1, 4088, 131063, 131064, 131065, 1000000, 10000000]) {
      const body = Buffer.alloc(size, 'Leveret');
      const { content } = await roundTrip(channel, queue, body);
      assert.ok(content.equals(body), `${size} bytes`);
    }
  },

  async 'a body sent in big frames reaches a reader in small ones, got and consumed'(connection) {
    const queue = freshName('small');
    const writer = await connection.createConfirmChannel();
    await writer.assertQueue(queue, { durable: false });
    const body = Buffer.alloc(100000, 'Leveret');
    writer.sendToQueue(queue, body);
    writer.sendToQueue(queue, body);
    await writer.waitForConfirms();
    // maxFrameSize makes amqplib refuse frames over the size it asked for.
    const separator = url.includes('?') ? '&' : '?';
    const small = await amqp.connect(`${url}${separator}frameMax=4096&maxFrameSize=4096`);
    const reader = await small.createChannel();
    assert.ok((await reader.get(queue, { noAck: true })).content.equals(body));
    const [message] = await collect(reader, queue, 1);
    assert.ok(message.content.equals(body));
    await small.close();
  },

  async 'properties and headers'(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const headers = {
      yes: true, no: false, nothing: null, byte: 7, short: -300, int: 70000, long: -5000000000,
      double: 0.1, text: 'Grüße 🐇', array: [1, 'two', [3.5], { four: null }],
      table: { deep: { deeper: ['x'] } },
      bytes: Buffer.from([0, 255]),
      time: { '!': 'timestamp', value: 1700000000 },
      decimal: { '!': 'decimal', value: { digits: 1234, places: 2 } },
      float: { '!': 'float', value: 0.5 },
    };
    const sent = {
      contentType: 'text/plain', contentEncoding: 'utf-8', headers, deliveryMode: 2, priority: 5,
      correlationId: 'c', replyTo: 'r', expiration: '60000', messageId: 'm', timestamp: 1700000000,
      type: 't', userId: 'guest', appId: 'a',
    };
    const { properties } = await roundTrip(channel, queue, Buffer.from('x'), sent);
    assert.deepStrictEqual(properties.headers, { ...headers, float: 0.5 });
    for (const name of Object.keys(sent).filter((key) => key !== 'headers')) {
      assert.strictEqual(properties[name], sent[name], name);
    }
  },
});
