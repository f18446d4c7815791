'use strict';
// Confirm channels: acks, nacks, returns, order.

const assert = require('assert');
const { collect, freshName, once, run, text } = require('./scene');

run({
  async 'two thousand messages are confirmed and consumed in order'(connection) {
    const channel = await connection.createConfirmChannel();
    const queue = freshName('confirms');
    await channel.assertQueue(queue, { durable: true });
    let confirmed = 0;
    for (let i = 0; i < 2000; i++) {
      const room = channel.sendToQueue(queue, Buffer.from(`${i}`), { persistent: true }, (error) => {
        assert.ifError(error);
        confirmed++;
      });
      if (!room) await once(channel, 'drain');
    }
    await channel.waitForConfirms();
    assert.strictEqual(confirmed, 2000);
    assert.strictEqual((await channel.checkQueue(queue)).messageCount, 2000);
    const messages = await collect(channel, queue, 2000);
    assert.deepStrictEqual(messages.map(text), Array.from({ length: 2000 }, (_, i) => `${i}`));
  },

  async 'a mandatory message without a route is returned before it is confirmed'(connection) {
    const channel = await connection.createConfirmChannel();
    const events = [];
    channel.on('return', (message) => events.push(message));
    const key = freshName('nowhere');
    await new Promise((resolve, reject) => {
      const options = { mandatory: true, messageId: 'm-1', headers: { a: [1] } };
      channel.publish('', key, Buffer.from('lost'), options, (error) => {
        events.push('confirmed');
        return error ? reject(error) : resolve();
      });
    });
    assert.strictEqual(events.length, 2);
    assert.strictEqual(events[1], 'confirmed');
    const { fields, properties } = events[0];
    assert.deepStrictEqual([fields.replyCode, fields.replyText], [312, 'NO_ROUTE']);
    assert.deepStrictEqual([fields.exchange, fields.routingKey], ['', key]);
    assert.deepStrictEqual([properties.messageId, properties.headers], ['m-1', { a: [1] }]);
    assert.strictEqual(text(events[0]), 'lost');
  },

  async 'a full queue that rejects publishes nacks them'(connection) {
    const channel = await connection.createConfirmChannel();
    const queue = freshName('full');
    await channel.assertQueue(queue, {
      durable: false, maxLength: 3, arguments: { 'x-overflow': 'reject-publish' },
    });
    const outcomes = await Promise.all(Array.from({ length: 6 }, (_, i) => new Promise((resolve) => {
      channel.sendToQueue(queue, Buffer.from(`${i}`), {}, (error) => resolve(error === null));
    })));
    assert.deepStrictEqual(outcomes, [true, true, true, false, false, false]);
    assert.deepStrictEqual((await collect(channel, queue, 3)).map(text), ['0', '1', '2']);
  },

  async 'without confirms a return still comes'(connection) {
    const channel = await connection.createChannel();
    const returned = once(channel, 'return');
    channel.publish('amq.direct', freshName('unbound'), Buffer.from('lost'), { mandatory: true });
    assert.strictEqual((await returned).fields.replyCode, 312);
  },
});
