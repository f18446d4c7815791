'use strict';
// Topic, headers, fanout and exchange-to-exchange bindings; alternate exchanges; CC.

const assert = require('assert');
const { freshName, run, text } = require('./scene');

// One queue per entry of `bindings`; publishes each message and tells which queues got which.
async function routed(connection, type, bindings, messages) {
  const channel = await connection.createConfirmChannel();
  const exchange = freshName(type);
  await channel.assertExchange(exchange, type, { durable: false });
  const queues = {};
  for (const [label, [pattern, args]] of Object.entries(bindings)) {
    queues[label] = (await channel.assertQueue('', { exclusive: true })).queue;
    await channel.bindQueue(queues[label], exchange, pattern, args);
  }
  for (const [body, key, headers] of messages) {
    channel.publish(exchange, key, Buffer.from(body), { headers });
  }
  await channel.waitForConfirms();
  const got = {};
  for (const [label, queue] of Object.entries(queues)) {
    got[label] = [];
    let message;
    while ((message = await channel.get(queue, { noAck: true }))) got[label].push(text(message));
  }
  return got;
}

run({
  async 'topic patterns'(connection) {
    const bindings = {
      one: ['*.orange.*'], rest: ['lazy.#'], all: ['#'], middle: ['a.#.b'], exact: ['a.b'],
    };
    const keys = ['quick.orange.rabbit', 'lazy', 'lazy.pink.rabbit', 'a.b', 'a.x.y.b', ''];
    assert.deepStrictEqual(await routed(connection, 'topic', bindings, keys.map((key) => [key, key])), {
      one: ['quick.orange.rabbit'],
      rest: ['lazy', 'lazy.pink.rabbit'],
      all: keys,
      middle: ['a.b', 'a.x.y.b'],
      exact: ['a.b'],
    });
  },

  async 'headers matches'(connection) {
    const bindings = {
      all: ['', { 'x-match': 'all', format: 'pdf', pages: 2 }],
      any: ['', { 'x-match': 'any', format: 'pdf', pages: 2 }],
      present: ['', { 'x-match': 'all', format: null }],
      everything: ['', { 'x-match': 'all' }],
      nothing: ['', { 'x-match': 'any' }],
    };
    const messages = [
      ['both', '', { format: 'pdf', pages: 2, more: true }],
      ['one', '', { format: 'pdf', pages: 3 }],
      ['neither', '', { size: 'A4' }],
    ];
    assert.deepStrictEqual(await routed(connection, 'headers', bindings, messages), {
      all: ['both'],
      any: ['both', 'one'],
      present: ['both', 'one'],
      everything: ['both', 'one', 'neither'],
      nothing: [],
    });
  },

  async 'fanout and direct'(connection) {
    const fanned = await routed(connection, 'fanout', { a: ['x'], b: ['y'] }, [['m', 'z']]);
    assert.deepStrictEqual(fanned, { a: ['m'], b: ['m'] });
    const direct = await routed(connection, 'direct', { a: ['x'], b: ['y'] }, [['m', 'y'], ['n', 'z']]);
    assert.deepStrictEqual(direct, { a: [], b: ['m'] });
  },

  async 'exchanges bound to exchanges, and alternates for what is left'(connection) {
    const channel = await connection.createConfirmChannel();
    const [source, target, spare] = ['source', 'target', 'spare'].map(freshName);
    await channel.assertExchange(spare, 'fanout', { durable: false });
    await channel.assertExchange(source, 'topic', { durable: false, alternateExchange: spare });
    await channel.assertExchange(target, 'fanout', { durable: false, internal: true });
    await channel.bindExchange(target, source, 'inner.*');
    const { queue: inner } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(inner, target, '');
    const { queue: left } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(left, spare, '');
    channel.publish(source, 'inner.a', Buffer.from('in'));
    channel.publish(source, 'outer.a', Buffer.from('out'), { mandatory: true });
    await channel.waitForConfirms();
    assert.strictEqual(text(await channel.get(inner, { noAck: true })), 'in');
    assert.strictEqual(text(await channel.get(left, { noAck: true })), 'out');
    assert.strictEqual(await channel.get(left), false);
    await channel.unbindExchange(target, source, 'inner.*');
    channel.publish(source, 'inner.a', Buffer.from('left'));
    await channel.waitForConfirms();
    assert.strictEqual(text(await channel.get(left, { noAck: true })), 'left');
  },

  async 'CC adds keys that everybody sees and BCC keys that nobody does'(connection) {
    const channel = await connection.createConfirmChannel();
    const [to, cc, bcc] = ['to', 'cc', 'bcc'].map(freshName);
    for (const queue of [to, cc, bcc]) await channel.assertQueue(queue, { durable: false });
    channel.sendToQueue(to, Buffer.from('x'), { CC: [cc], BCC: bcc });
    await channel.waitForConfirms();
    for (const queue of [to, cc, bcc]) {
      const { properties } = await channel.get(queue, { noAck: true });
      assert.deepStrictEqual(properties.headers, { CC: [cc] });
    }
  },
});
