// Node's amqplib: a work queue. Publish jobs with confirms, work on them, stop when done.
//
// Run it with `node examples/node_jobs.js` while the broker runs (`make run`). It needs amqplib.

const amqp = require("amqplib");

const url = process.env.AMQP_URL || "amqp://guest:guest@127.0.0.1:5672/";
const queue = "examples.jobs";

async function main() {
  const connection = await amqp.connect(url, { clientProperties: { connection_name: "jobs" } });

  const producer = await connection.createConfirmChannel();
  await producer.deleteQueue(queue); // should an earlier run have left something
  await producer.assertQueue(queue, { durable: true });
  const jobs = ["resize cat.png", "resize dog.png", "send invoice 7"];
  for (const job of jobs) {
    producer.sendToQueue(queue, Buffer.from(job), { persistent: true });
  }
  await producer.waitForConfirms();
  console.log(`published ${jobs.length}, all confirmed`);

  const worker = await connection.createChannel();
  await worker.prefetch(1); // one job at a time: a slow worker does not hoard
  let left = jobs.length;
  await new Promise((resolve) => {
    worker.consume(queue, (message) => {
      if (message === null) return; // the queue was deleted, see below
      console.log("done:", message.content.toString());
      worker.ack(message);
      left -= 1;
      if (left === 0) resolve();
    });
  });

  await worker.deleteQueue(queue);
  await connection.close();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
