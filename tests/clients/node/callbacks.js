'use strict';
// amqplib's callback API, driven from connect to close.

const amqp = require('amqplib/callback_api');
const assert = require('assert');
const crypto = require('crypto');

const url = process.argv[2];
const queue = `clients.node.callbacks.${crypto.randomBytes(6).toString('hex')}`;
const expired = setTimeout(() => { throw new Error('not done after 30 s'); }, 30000);

// The rest of the program, called with the result of the step before.
const then = (next) => (error, result) => {
  if (error) throw error;
  next(result);
};

amqp.connect(url, then((connection) => {
  connection.createConfirmChannel(then((channel) => {
    channel.assertQueue(queue, { durable: false }, then(({ messageCount }) => {
      assert.strictEqual(messageCount, 0);
      publishAll(connection, channel);
    }));
  }));
}));

function publishAll(connection, channel) {
  let confirmed = 0;
  for (let i = 0; i < 100; i++) {
    channel.sendToQueue(queue, Buffer.from(`${i}`), {}, then(() => {
      confirmed++;
      if (confirmed === 100) channel.prefetch(10, false, then(() => consumeAll(connection, channel)));
    }));
  }
}

function consumeAll(connection, channel) {
  const got = [];
  channel.consume(queue, (message) => {
    got.push(message.content.toString());
    channel.ack(message);
    if (got.length < 100) return;
    assert.deepStrictEqual(got, Array.from({ length: 100 }, (_, i) => `${i}`));
    channel.cancel('reader', then(() => {
      channel.get(queue, {}, then((empty) => {
        assert.strictEqual(empty, false);
        fail(connection, channel);
      }));
    }));
  }, { consumerTag: 'reader' });
}

function fail(connection, channel) {
  connection.createChannel(then((doomed) => {
    doomed.on('error', (error) => {
      assert.strictEqual(error.code, 404);
      finish(connection, channel);
    });
    doomed.checkExchange(`${queue}.missing`);
  }));
}

function finish(connection, channel) {
  channel.deleteQueue(queue, {}, then(({ messageCount }) => {
    assert.strictEqual(messageCount, 0);
    channel.close(then(() => connection.close(then(() => {
      clearTimeout(expired);
      console.log('ok the callback API from connect to close');
    }))));
  }));
}
