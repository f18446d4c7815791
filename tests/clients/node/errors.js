'use strict';
// Mistakes close the channel, or the connection, with the code amqplib's users look for.

const assert = require('assert');
const { amqp, freshName, once, run, url } = require('./scene');

async function failsWith(connection, code, mistake) {
  const channel = await connection.createChannel();
  const failed = once(channel, 'error');
  await Promise.resolve(mistake(channel)).catch(() => {});
  assert.strictEqual((await failed).code, code);
}

function elsewhere(change) {
  const address = new URL(url);
  change(address);
  return amqp.connect(address.href);
}

run({
  async 'channel errors carry their codes and leave the connection open'(connection) {
    const queue = freshName('errors');
    const channel = await connection.createChannel();
    await channel.assertQueue(queue, { durable: false });
    const missing = freshName('missing');
    await failsWith(connection, 404, (c) => c.checkQueue(missing));
    await failsWith(connection, 404, (c) => c.checkExchange(missing));
    await failsWith(connection, 404, (c) => c.consume(missing, () => {}));
    await failsWith(connection, 404, (c) => c.bindQueue(queue, missing, ''));
    await failsWith(connection, 404, (c) => { c.publish(missing, '', Buffer.alloc(0)); });
    await failsWith(connection, 406, (c) => c.assertQueue(queue, { durable: true }));
    await failsWith(connection, 406, (c) => c.assertQueue(queue, { durable: false, maxLength: 5 }));
    await failsWith(connection, 406, (c) => { c.ack({ fields: { deliveryTag: 99 } }); });
    await failsWith(connection, 403, (c) => c.assertExchange('amq.mine', 'direct'));
    await failsWith(connection, 403, (c) => c.deleteExchange('amq.fanout'));
    assert.strictEqual((await channel.checkQueue(queue)).queue, queue);
  },

  async 'a message is redelivered when a mistake closes its channel'(connection) {
    const channel = await connection.createConfirmChannel();
    const queue = freshName('redelivered');
    await channel.assertQueue(queue, { durable: false });
    channel.sendToQueue(queue, Buffer.from('x'));
    await channel.waitForConfirms();
    await failsWith(connection, 406, async (c) => {
      await c.get(queue);
      c.ack({ fields: { deliveryTag: 99 } });
    });
    let again = false;
    while (again === false) again = await channel.get(queue, { noAck: true });
    assert.strictEqual(again.fields.redelivered, true);
  },

  async 'a wrong password and an unknown vhost are refused'() {
    await assert.rejects(elsewhere((address) => { address.password = 'wrong'; }), /403|ACCESS.REFUSED/);
    await assert.rejects(elsewhere((address) => { address.pathname = '/no-such-vhost'; }), /ConnectionClose/);
  },

  async 'a consumer tag used twice closes the connection'() {
    const connection = await amqp.connect(url);
    const failed = once(connection, 'error');
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.consume(queue, () => {}, { consumerTag: 'mine' });
    await channel.consume(queue, () => {}, { consumerTag: 'mine' }).catch(() => {});
    assert.strictEqual((await failed).code, 530);
  },
});
