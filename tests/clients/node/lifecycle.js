'use strict';
// Heartbeats, consumers the server cancels, exclusive and auto-delete queues.

const assert = require('assert');
const { amqp, freshName, once, run, text, url } = require('./scene');

run({
  async 'the server names its product, version and capabilities'(connection) {
    const { product, version, capabilities } = connection.connection.serverProperties;
    assert.strictEqual(product, 'RabbitMQ');
    assert.match(version, /^\d+\.\d+/);
    assert.strictEqual(capabilities.publisher_confirms, true);
    assert.strictEqual(capabilities.consumer_cancel_notify, true);
  },

  async 'one-second heartbeats keep an idle connection open'() {
    const separator = url.includes('?') ? '&' : '?';
    const connection = await amqp.connect(`${url}${separator}heartbeat=1`);
    const failures = [];
    connection.on('error', (error) => failures.push(error));
    await new Promise((resolve) => { setTimeout(resolve, 3500); });
    assert.deepStrictEqual(failures, []);
    await (await connection.createChannel()).assertQueue('', { exclusive: true });
    await connection.close();
  },

  async 'a consumer is given null when its queue is deleted'(connection) {
    const channel = await connection.createChannel();
    const queue = freshName('cancel');
    await channel.assertQueue(queue, { durable: false });
    const cancelled = new Promise((resolve) => { channel.consume(queue, resolve); });
    const other = await connection.createChannel();
    await other.deleteQueue(queue);
    assert.strictEqual(await cancelled, null);
    await channel.assertQueue(queue, { durable: false });
  },

  async 'an exclusive queue is locked for others and goes with its connection'(connection) {
    const owner = await amqp.connect(url);
    const queue = freshName('exclusive');
    await (await owner.createChannel()).assertQueue(queue, { exclusive: true });
    const stranger = await connection.createChannel();
    const locked = once(stranger, 'error');
    await assert.rejects(stranger.checkQueue(queue), { code: 405 });
    assert.strictEqual((await locked).code, 405);
    await owner.close();
    const later = await connection.createChannel();
    later.on('error', () => {});
    await assert.rejects(later.checkQueue(queue), { code: 404 });
  },

  async 'an exclusive consumer keeps others away'(connection) {
    const channel = await connection.createChannel();
    const queue = freshName('exclusive-consumer');
    await channel.assertQueue(queue, { durable: false });
    await channel.consume(queue, () => {}, { exclusive: true });
    const other = await connection.createChannel();
    other.on('error', () => {});
    await assert.rejects(other.consume(queue, () => {}), { code: 403 });
  },

  async 'an auto-delete queue goes with its last consumer'(connection) {
    const channel = await connection.createChannel();
    const queue = freshName('auto-delete');
    await channel.assertQueue(queue, { durable: false, autoDelete: true });
    const { consumerTag } = await channel.consume(queue, () => {});
    await channel.cancel(consumerTag);
    channel.on('error', () => {});
    await assert.rejects(channel.checkQueue(queue), { code: 404 });
  },

  async 'consumers of higher priority are served first'(connection) {
    const channel = await connection.createChannel();
    const queue = freshName('consumer-priority');
    await channel.assertQueue(queue, { durable: false });
    const got = [];
    const done = new Promise((resolve) => {
      const take = (who) => (message) => {
        got.push([who, text(message)]);
        channel.ack(message);
        if (got.length === 5) resolve();
      };
      channel.consume(queue, take('low'), { priority: 0 });
      channel.consume(queue, take('high'), { priority: 10 });
    });
    await channel.checkQueue(queue);
    for (let i = 0; i < 5; i++) channel.sendToQueue(queue, Buffer.from(`${i}`));
    await done;
    assert.deepStrictEqual(got, Array.from({ length: 5 }, (_, i) => ['high', `${i}`]));
  },

  async 'a secret can be updated'(connection) {
    await connection.updateSecret(Buffer.from('guest'), 'rotation');
    await (await connection.createChannel()).assertQueue('', { exclusive: true });
  },
});
