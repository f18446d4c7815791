'use strict';
// Prefetch, acks, requeueing, and dead-lettering by nack and by expiry.

const assert = require('assert');
const { collect, eventually, freshName, run, text } = require('./scene');

async function filled(connection, count, options = {}) {
  const channel = await connection.createConfirmChannel();
  const queue = freshName('settling');
  await channel.assertQueue(queue, { durable: false, ...options });
  for (let i = 0; i < count; i++) channel.sendToQueue(queue, Buffer.from(`${i}`));
  await channel.waitForConfirms();
  return [channel, queue];
}

run({
  async 'no more messages than the prefetch are out at once'(connection) {
    const [control, queue] = await filled(connection, 20);
    const ready = async () => (await control.checkQueue(queue)).messageCount;
    const channel = await connection.createChannel();
    await channel.prefetch(5);
    const got = [];
    await channel.consume(queue, (message) => got.push(message));
    await eventually(async () => (await ready()) === 15 && got.length === 5, 'five messages');
    channel.ack(got[2], true);
    await eventually(async () => (await ready()) === 12 && got.length === 8, 'three more');
    channel.ackAll();
    await eventually(async () => (await ready()) === 7 && got.length === 13, 'five more');
    assert.deepStrictEqual(got.map(text), Array.from({ length: 13 }, (_, i) => `${i}`));
  },

  async 'a prefetch for the whole channel is shared by its consumers'(connection) {
    const [control, queue] = await filled(connection, 20);
    const channel = await connection.createChannel();
    await channel.prefetch(6, true);
    const got = [];
    await channel.consume(queue, (message) => got.push(message));
    await channel.consume(queue, (message) => got.push(message));
    const ready = async () => (await control.checkQueue(queue)).messageCount;
    await eventually(async () => (await ready()) === 14 && got.length === 6, 'six messages');
  },

  async 'requeued messages come back in their old order, flagged'(connection) {
    const [channel, queue] = await filled(connection, 4);
    const first = await collect(channel, queue, 4, { noAck: false });
    channel.nack(first[2], true, true);
    channel.reject(first[3], false);
    const again = await collect(channel, queue, 3);
    assert.deepStrictEqual(again.map(text), ['0', '1', '2']);
    assert.ok(again.every((message) => message.fields.redelivered));
  },

  async 'recover brings back what was not acknowledged'(connection) {
    const [channel, queue] = await filled(connection, 2);
    assert.strictEqual(text(await channel.get(queue)), '0');
    await channel.recover();
    const again = await collect(channel, queue, 2);
    assert.deepStrictEqual(again.map((m) => [text(m), m.fields.redelivered]), [['0', true], ['1', false]]);
  },

  async 'nacked messages go to the dead letter exchange with their history'(connection) {
    const exchange = freshName('dlx');
    const dead = freshName('dead');
    const [channel, queue] = await filled(connection, 2, {
      deadLetterExchange: exchange, deadLetterRoutingKey: 'died',
    });
    await channel.assertExchange(exchange, 'direct', { durable: false });
    await channel.assertQueue(dead, { durable: false });
    await channel.bindQueue(dead, exchange, 'died');
    await collect(channel, queue, 2, { noAck: false }, (message) => channel.nack(message, false, false));
    const messages = await collect(channel, dead, 2);
    assert.deepStrictEqual(messages.map(text), ['0', '1']);
    for (const { fields, properties } of messages) {
      assert.deepStrictEqual([fields.exchange, fields.routingKey], [exchange, 'died']);
      const [death] = properties.headers['x-death'];
      assert.strictEqual(properties.headers['x-death'].length, 1);
      assert.deepStrictEqual(
        [death.queue, death.reason, death.exchange, death['routing-keys'], death.count],
        [queue, 'rejected', '', [queue], 1],
      );
      assert.strictEqual(properties.headers['x-first-death-queue'], queue);
      assert.strictEqual(properties.headers['x-first-death-reason'], 'rejected');
    }
  },

  async 'expired messages go to the dead letter exchange'(connection) {
    const dead = freshName('expired');
    const [channel, queue] = await filled(connection, 0, {
      deadLetterExchange: '', deadLetterRoutingKey: dead, messageTtl: 60000,
    });
    await channel.assertQueue(dead, { durable: false });
    channel.sendToQueue(queue, Buffer.from('short-lived'), { expiration: '50' });
    const [message] = await collect(channel, dead, 1);
    const [death] = message.properties.headers['x-death'];
    assert.deepStrictEqual([death.reason, death['original-expiration']], ['expired', '50']);
    assert.strictEqual(message.properties.expiration, undefined);
  },
});
